"""Fresh weights with the circuits that copying and reading the prompt need already in place.

A transformer of this size spends most of a short training run on a plateau until it has found attention heads
that look one token back, and heads that continue what followed the same tokens earlier ("induction"). Both
can be written down: with rotary positions a constant query and key whose phases differ by d positions attend
d tokens back, and a random projection of the embedding is a code that later heads can compare. A third head
averages the codes of the words that only prompts use, so that what a prompt says is at hand everywhere;
without it, prompts were hardly used after two thousand steps. Everything else is random, and all is trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tools.reference.model import Shape, Weights, new_weights

_CONSTANT = 3.0
# Channel 0 of every embedding, in standard deviations: what constant queries and keys read.
_SHARPNESS = 8.0
# Size of a constant query or key per rotary pair.
_MATCH = 2.5
# Scale of the codes that induction heads compare.
_FAST = range(8)
# Rotary pairs that tell neighbouring positions apart.
_MARK = 3.2
# Size of the query and key that pick the words of the prompt, per rotary pair.
_SLOW = range(20, 32)
# Rotary pairs that hardly turn over a transcript: they compare contents.
_SLOWEST = range(24, 32)
# Rotary pairs that do not turn over a transcript.


def primed_weights(shape: Shape, generator: torch.Generator, marked: Sequence[int]) -> Weights:
    """Fresh weights with previous-token and prompt heads in layer 0 and induction heads in layer 1.

    `marked` are the tokens that prompts use and plain episodes do not.
    """
    weights = new_weights(shape, generator)
    embedding = weights["token_embd.weight"]
    size = embedding.std() * _CONSTANT
    embedding[:, 0] = size
    embedding[:, 1] = 0.0
    embedding[list(marked), 1] = size
    for name, tensor in weights.items():
        if name.endswith(".bias"):
            tensor.mul_(0.2)
        elif name.endswith("ffn_down.weight") or name in (
            "blk.2.attn_output.weight",
            "blk.3.attn_output.weight",
        ):
            tensor.mul_(0.3)
    head, width = shape.head, shape.width
    basis = _orthogonal(width - 2, width - 2, generator)
    code = torch.zeros(head, width)
    code[:, 2:] = basis[:, :head].t()
    back = torch.zeros(2, width, head)
    back[:, 2:] = torch.stack((basis[:, head : 2 * head], basis[:, 2 * head : 3 * head]))
    prompt = torch.zeros(width, head)
    prompt[2:, : width - 2 - 3 * head] = basis[:, 3 * head :]
    _look_back(weights, shape, code, back)
    _read_prompt(weights, shape, code, prompt)
    _continue(weights, shape, code, back, generator)
    # Nearly tied: what a head copies raises that token's logit.
    output = embedding * 0.05
    output[:, :2] = 0.0
    weights["output.weight"] = output
    return weights


def _look_back(weights: Weights, shape: Shape, code: torch.Tensor, back: torch.Tensor) -> None:
    """Layer 0, heads 0 and 1: write the codes of the tokens one and two back into subspaces of their own."""
    q, k, v, o = (weights[f"blk.0.{name}.weight"] for name in ("attn_q", "attn_k", "attn_v", "attn_output"))
    head = shape.head
    q[: 2 * head] *= 0.05
    k[:head] *= 0.05
    size = _SHARPNESS / _CONSTANT
    for pair in _FAST:
        first, second = _pair(shape, pair)
        turn = shape.theta ** (-2.0 * pair / head)
        k[first, 0], k[second, 0] = size, 0.0
        for which, distance in enumerate((1, 2)):
            q[which * head + first, 0] = size * math.cos(distance * turn)
            q[which * head + second, 0] = -size * math.sin(distance * turn)
    v[:head] = code
    for which in range(2):
        o[:, which * head : (which + 1) * head] = 0.4 * back[which]


def _read_prompt(weights: Weights, shape: Shape, code: torch.Tensor, prompt: torch.Tensor) -> None:
    """Layer 0, head 2: write the mean code of the marked tokens into a subspace of its own."""
    q, k, v, o = (weights[f"blk.0.{name}.weight"] for name in ("attn_q", "attn_k", "attn_v", "attn_output"))
    head = shape.head
    q[2 * head : 3 * head] *= 0.05
    k[head:] *= 0.05
    for pair in _SLOWEST:
        first, _ = _pair(shape, pair)
        q[2 * head + first, 0] = _MARK / _CONSTANT
        k[head + first, 1] = _MARK / _CONSTANT
    v[head:] = code
    o[:, 2 * head : 3 * head] = 3.0 * prompt


def _continue(
    weights: Weights, shape: Shape, code: torch.Tensor, back: torch.Tensor, generator: torch.Generator
) -> None:
    """Layer 1, heads 0 and 1: find where the last two (the last) tokens stood before, copy what followed."""
    q, k, v, o = (weights[f"blk.1.{name}.weight"] for name in ("attn_q", "attn_k", "attn_v", "attn_output"))
    head = shape.head
    rows = [row for pair in _SLOW for row in _pair(shape, pair)]
    mix = [_orthogonal(len(rows), head, generator) for _ in range(2)]
    q[: 2 * head] *= 0.05
    k[:head] *= 0.05
    k[rows] += _MATCH * (mix[0] @ back[0].t() + mix[1] @ back[1].t())
    q[rows] += _MATCH * (mix[0] @ code + mix[1] @ back[0].t())
    q[[head + row for row in rows]] += _MATCH * mix[0] @ code
    copied = _orthogonal(head, shape.width, generator)
    copied[:, :2] = 0.0
    v[:head] = copied
    for which in range(2):
        o[:, which * head : (which + 1) * head] = 0.5 * copied.t()


def _pair(shape: Shape, index: int) -> tuple[int, int]:
    """Rows of a rotary pair: neighbours for llama, halves for qwen2."""
    return (2 * index, 2 * index + 1) if shape.arch == "llama" else (index, index + shape.head // 2)


def _orthogonal(rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    """Random matrix with orthonormal rows or columns, whichever are fewer."""
    tall = torch.randn(max(rows, columns), min(rows, columns), generator=generator)
    q, _ = torch.linalg.qr(tall)
    return q if rows >= columns else q.t()
