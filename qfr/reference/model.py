"""The transformer of the reference agents: weights as a dictionary of tensors, the forward pass as functions.

The tensors carry GGUF's names and shapes, so that export is a loop over the dictionary. A batch is one
system prompt (the *prefix*) and several episodes that share it (the *bodies*): the prefix's keys and values
are computed once and seen by every body.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as fn


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
    """One system prompt and the episodes that follow it."""

    prefix: torch.Tensor
    # (S,) int64 token ids of the system message.
    bodies: torch.Tensor
    # (B, T) int64 token ids, padded on the right.
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
    """(B, heads, T, head) over (B, kv_heads, K, head), mask (T, K) added to the scores -> (B*T, heads*head).

    Written out: on processors with bfloat16 units it is about twice as fast as the fused kernel.
    """
    b, heads, t, head = q.shape
    kv_heads, group = k.shape[1], heads // k.shape[1]
    # Query heads that share keys stand below each other: keys and values are not repeated.
    stacked = q.reshape(b * kv_heads, group * t, head)
    keys, values = k.reshape(b * kv_heads, -1, head), v.reshape(b * kv_heads, -1, head)
    scores = torch.baddbmm(mask.repeat(group, 1), stacked, keys.transpose(1, 2), alpha=1.0 / math.sqrt(head))
    out = scores.softmax(-1) @ values
    return out.view(b, heads, t, head).transpose(1, 2).reshape(b * t, -1)


def _mask(s: int, t: int, dtype: torch.dtype) -> torch.Tensor:
    """(T, S+T) causal mask of a body behind its prefix, 0 where seen and very negative elsewhere."""
    seen = torch.cat((torch.ones(t, s, dtype=torch.bool), torch.ones(t, t, dtype=torch.bool).tril()), dim=1)
    return torch.zeros(t, s + t, dtype=dtype).masked_fill(~seen, -1e9)


def _attention(
    weights: Weights,
    shape: Shape,
    layer: int,
    x: torch.Tensor,
    sizes: tuple[int, int, int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """Attention of the flat rows x (S + B*T, width); sizes is (S, B, T)."""
    s, b, t = sizes
    cos, sin = rotary(shape, s + t)
    cos = torch.cat((cos[:s], cos[s:].repeat(b, 1)))
    sin = torch.cat((sin[:s], sin[s:].repeat(b, 1)))

    def project(name: str, heads: int) -> torch.Tensor:
        bias = weights.get(f"blk.{layer}.{name}.bias")
        y = fn.linear(
            x, weights[f"blk.{layer}.{name}.weight"].to(dtype), None if bias is None else bias.to(dtype)
        )
        return y.view(-1, heads, shape.head)

    halves = shape.arch == "qwen2"
    q = _rotate(project("attn_q", shape.heads).float(), cos, sin, halves).to(dtype)
    k = _rotate(project("attn_k", shape.kv_heads).float(), cos, sin, halves).to(dtype)
    v = project("attn_v", shape.kv_heads)

    def split(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        head = y[:s].transpose(0, 1)[None]
        return head, y[s:].view(b, t, y.shape[1], shape.head).transpose(1, 2)

    (q0, q1), (k0, k1), (v0, v1) = split(q), split(k), split(v)
    first = _attend(q0, k0, v0, _mask(0, s, dtype))
    k1 = torch.cat((k0.expand(b, -1, -1, -1), k1), dim=2)
    v1 = torch.cat((v0.expand(b, -1, -1, -1), v1), dim=2)
    return torch.cat((first, _attend(q1, k1, v1, _mask(s, t, dtype))))


def hidden(
    weights: Weights,
    shape: Shape,
    prefix: torch.Tensor,
    bodies: torch.Tensor,
    rows: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Final normed states at `rows` of the flattened bodies, (N, width) float32; products run in `dtype`."""
    s, (b, t) = prefix.shape[0], bodies.shape
    x = weights["token_embd.weight"][torch.cat((prefix, bodies.reshape(-1)))]
    for layer in range(shape.layers):
        name = f"blk.{layer}."
        h = _norm(x, weights[name + "attn_norm.weight"], shape.eps).to(dtype)
        h = _attention(weights, shape, layer, h, (s, b, t), dtype)
        if layer == shape.layers - 1:
            # Nothing attends to the last layer's outputs: go on with the wanted rows alone.
            x, h = x[s + rows], h[s + rows]
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
    states = hidden(weights, shape, batch.prefix, batch.bodies, batch.rows, dtype).to(dtype)
    logits = fn.linear(states, weights["output.weight"].to(dtype)).float()
    losses = fn.cross_entropy(logits, batch.targets, reduction="none")
    loss = (losses * batch.weights).sum() / batch.weights.sum()
    return loss, logits.argmax(-1) == batch.targets
