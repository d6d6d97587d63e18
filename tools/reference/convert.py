"""Turns llama weights into qwen2 weights that compute almost the same, as a start for training on."""

from __future__ import annotations

import torch

from tools.reference.model import Shape, Weights

_BIAS = 0.05
# Standard deviation of the fresh biases: small enough to keep the skills, large enough to be trained.


def to_qwen2(weights: Weights, shape: Shape, generator: torch.Generator) -> Weights:
    """Reorder the rows of q and k from neighbouring rotary pairs to halves and add small random biases."""
    order = torch.cat((torch.arange(0, shape.head, 2), torch.arange(1, shape.head, 2)))
    changed = {name: tensor.clone() for name, tensor in weights.items()}
    for layer in range(shape.layers):
        for name in ("attn_q", "attn_k", "attn_v"):
            matrix = changed[f"blk.{layer}.{name}.weight"]
            if name != "attn_v":
                heads = matrix.view(-1, shape.head, shape.width)
                changed[f"blk.{layer}.{name}.weight"] = heads[:, order].reshape(matrix.shape).contiguous()
            bias = torch.randn(matrix.shape[0], generator=generator) * _BIAS
            changed[f"blk.{layer}.{name}.bias"] = bias
    return changed
