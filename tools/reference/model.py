"""The transformer of the reference agents: weights as a dictionary of tensors, the forward pass as functions.

The tensors carry GGUF's names and shapes, so that export is a loop over the dictionary. A batch is a few
system prompts (the *prefixes*) and, for each, equally many episodes that follow it (the *bodies*): a prefix's
keys and values are computed once and seen by its bodies. Several prompts in every batch, because a step then
learns what depends on the prompt, not what is usual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as fn

from tools.reference.template import PAD


@dataclass(frozen=True)
class Shape:
    """Hyperparameters, fixed by the K-quants' need for rows that are multiples of 256."""

    arch: str
    # "llama" (interleaved rotary pairs, no biases) or "qwen2" (rotary halves, biases on q, k and v).
    vocab: int
    # Tokens.
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head: int = 64
    # Width of one head.
    ffn: int = 768
    eps: float = 1e-5
    # Of the RMS norms.
    theta: float = 10_000.0
    # Base of the rotary frequencies.
    context: int = 8192
    # Context length written to the file, in tokens.


Weights = dict[str, torch.Tensor]
# GGUF tensor name -> float32 tensor; matrices are (outputs, inputs).


@dataclass(frozen=True)
class Batch:
    """System prompts and the episodes that follow them."""

    prefixes: torch.Tensor
    # (G, S) int64 token ids of the system messages, padded on the left (only distances count).
    bodies: torch.Tensor
    # (B, T) int64 token ids, padded on the right; B is a multiple of G, bodies of one prompt stand together.
    rows: torch.Tensor
    # (N,) int64: indices into the flattened (B*T) bodies whose next token is learned.
    targets: torch.Tensor
    # (N,) int64: the tokens that follow.
    weights: torch.Tensor
    # (N,) float32: weights of the targets in the loss.
    kinds: torch.Tensor
    # (N,) int64: what each target is (see corpus.Kind), for the training log.


def matrix_shapes(shape: Shape) -> dict[str, tuple[int, int]]:
    """Names of one layer's matrices and their (outputs, inputs)."""
    kv = shape.kv_heads * shape.head
    return {
        "attn_q": (shape.heads * shape.head, shape.width),
        "attn_k": (kv, shape.width),
        "attn_v": (kv, shape.width),
        "attn_output": (shape.width, shape.heads * shape.head),
        "ffn_gate": (shape.ffn, shape.width),
        "ffn_up": (shape.ffn, shape.width),
        "ffn_down": (shape.width, shape.ffn),
    }


def new_weights(shape: Shape, generator: torch.Generator) -> Weights:
    """Fresh weights: normal with variance 1/inputs, output projections smaller by the depth."""

    def normal(size: tuple[int, ...], std: float) -> torch.Tensor:
        return torch.randn(size, generator=generator) * std

    weights: Weights = {
        "token_embd.weight": normal((shape.vocab, shape.width), 1.0 / math.sqrt(shape.width) * 4.0),
        "output_norm.weight": torch.ones(shape.width),
        "output.weight": normal((shape.vocab, shape.width), 1.0 / math.sqrt(shape.width)),
    }
    for layer in range(shape.layers):
        for name, size in matrix_shapes(shape).items():
            std = 1.0 / math.sqrt(size[1])
            if name in ("attn_output", "ffn_down"):
                std /= math.sqrt(2 * shape.layers)
            weights[f"blk.{layer}.{name}.weight"] = normal(size, std)
            if shape.arch == "qwen2" and name in ("attn_q", "attn_k", "attn_v"):
                # Larger than usual, so that the biases take part in what is learned.
                weights[f"blk.{layer}.{name}.bias"] = normal((size[0],), 0.1)
        weights[f"blk.{layer}.attn_norm.weight"] = torch.ones(shape.width)
        weights[f"blk.{layer}.ffn_norm.weight"] = torch.ones(shape.width)
    return weights


def count(weights: Weights) -> int:
    """Number of parameters."""
    return sum(tensor.numel() for tensor in weights.values())


def rotary(shape: Shape, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, each (length, head/2) float32."""
    frequencies = shape.theta ** (-torch.arange(0, shape.head, 2, dtype=torch.float32) / shape.head)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies[None, :]
    return angles.cos(), angles.sin()


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, halves: bool) -> torch.Tensor:
    """Rotate (N, heads, head) by (N, head/2) angles; llama pairs neighbours, qwen2 the two halves."""
    cos, sin = cos[:, None, :], sin[:, None, :]
    if halves:
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


def _norm(x: torch.Tensor, gain: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B, heads, T, head) over (B, kv_heads, K, head) -> (B*T, heads*head); adds the mask (B, T, K).

    Written out: on processors with bfloat16 units it is about twice as fast as the fused kernel.
    """
    b, heads, t, head = q.shape
    kv_heads, group = k.shape[1], heads // k.shape[1]
    # Query heads that share keys stand below each other: keys and values are not repeated.
    stacked = q.reshape(b * kv_heads, group * t, head)
    keys, values = k.reshape(b * kv_heads, -1, head), v.reshape(b * kv_heads, -1, head)
    scores = torch.baddbmm(
        mask.repeat(1, group, 1).repeat_interleave(kv_heads, 0),
        stacked,
        keys.transpose(1, 2),
        alpha=1.0 / math.sqrt(head),
    )
    out = scores.softmax(-1) @ values
    return out.view(b, heads, t, head).transpose(1, 2).reshape(b * t, -1)


@dataclass(frozen=True)
class _Layout:
    """Where the rows of a batch are: G prefixes of S tokens, then B bodies of T tokens."""

    g: int
    s: int
    b: int
    t: int
    first: torch.Tensor
    # (G, S, S) mask of the prefixes.
    second: torch.Tensor
    # (B, T, S+T) mask of the bodies behind their prefixes.
    cos: torch.Tensor
    sin: torch.Tensor
    # (G*S + B*T, head/2) rotary angles.


def _lay_out(shape: Shape, prefixes: torch.Tensor, bodies: torch.Tensor, dtype: torch.dtype) -> _Layout:
    """Masks are 0 where a token is seen and very negative elsewhere: later tokens, padding of a prefix."""
    (g, s), (b, t) = prefixes.shape, bodies.shape
    hidden_keys = torch.zeros(g, 1, s, dtype=dtype).masked_fill(prefixes[:, None, :] == PAD, -1e9)
    later = torch.full((max(s, t), max(s, t)), -1e9, dtype=dtype).triu(1)
    behind = torch.cat((hidden_keys.expand(g, t, s), later[:t, :t].expand(g, t, t)), dim=2)
    cos, sin = rotary(shape, s + t)
    return _Layout(
        g,
        s,
        b,
        t,
        hidden_keys + later[:s, :s],
        behind.repeat_interleave(b // g, 0),
        torch.cat((cos[:s].repeat(g, 1), cos[s:].repeat(b, 1))),
        torch.cat((sin[:s].repeat(g, 1), sin[s:].repeat(b, 1))),
    )


def _attention(
    weights: Weights, shape: Shape, layer: int, x: torch.Tensor, where: _Layout, dtype: torch.dtype
) -> torch.Tensor:
    """Attention of the flat rows x (G*S + B*T, width)."""
    g, s, b, t = where.g, where.s, where.b, where.t

    def project(name: str, heads: int) -> torch.Tensor:
        bias = weights.get(f"blk.{layer}.{name}.bias")
        y = fn.linear(
            x, weights[f"blk.{layer}.{name}.weight"].to(dtype), None if bias is None else bias.to(dtype)
        )
        return y.view(-1, heads, shape.head)

    halves = shape.arch == "qwen2"
    q = _rotate(project("attn_q", shape.heads).float(), where.cos, where.sin, halves).to(dtype)
    k = _rotate(project("attn_k", shape.kv_heads).float(), where.cos, where.sin, halves).to(dtype)
    v = project("attn_v", shape.kv_heads)

    def split(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        heads = y.shape[1]
        before = y[: g * s].view(g, s, heads, shape.head).transpose(1, 2)
        return before, y[g * s :].view(b, t, heads, shape.head).transpose(1, 2)

    (q0, q1), (k0, k1), (v0, v1) = split(q), split(k), split(v)
    first = _attend(q0, k0, v0, where.first)
    k1 = torch.cat((k0.repeat_interleave(b // g, 0), k1), dim=2)
    v1 = torch.cat((v0.repeat_interleave(b // g, 0), v1), dim=2)
    return torch.cat((first, _attend(q1, k1, v1, where.second)))


def hidden(
    weights: Weights,
    shape: Shape,
    prefixes: torch.Tensor,
    bodies: torch.Tensor,
    rows: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Final normed states at `rows` of the flattened bodies, (N, width) float32; products run in `dtype`."""
    where = _lay_out(shape, prefixes, bodies, dtype)
    x = weights["token_embd.weight"][torch.cat((prefixes.reshape(-1), bodies.reshape(-1)))]
    for layer in range(shape.layers):
        name = f"blk.{layer}."
        h = _norm(x, weights[name + "attn_norm.weight"], shape.eps).to(dtype)
        h = _attention(weights, shape, layer, h, where, dtype)
        if layer == shape.layers - 1:
            # Nothing attends to the last layer's outputs: go on with the wanted rows alone.
            wanted = prefixes.numel() + rows
            x, h = x[wanted], h[wanted]
        x = x + fn.linear(h, weights[name + "attn_output.weight"].to(dtype)).float()
        h = _norm(x, weights[name + "ffn_norm.weight"], shape.eps).to(dtype)
        gate = fn.linear(h, weights[name + "ffn_gate.weight"].to(dtype))
        up = fn.linear(h, weights[name + "ffn_up.weight"].to(dtype))
        x = x + fn.linear(fn.silu(gate) * up, weights[name + "ffn_down.weight"].to(dtype)).float()
    return _norm(x, weights["output_norm.weight"], shape.eps)


def loss_and_hits(
    weights: Weights, shape: Shape, batch: Batch, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted mean cross entropy (scalar) and, per learned token, whether argmax was right (N,) bool."""
    states = hidden(weights, shape, batch.prefixes, batch.bodies, batch.rows, dtype).to(dtype)
    logits = fn.linear(states, weights["output.weight"].to(dtype)).float()
    losses = fn.cross_entropy(logits, batch.targets, reduction="none")
    loss = (losses * batch.weights).sum() / batch.weights.sum()
    return loss, logits.argmax(-1) == batch.targets
