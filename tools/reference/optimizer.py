"""The optimizer: Muon for the matrices inside the layers, AdamW for embeddings, output, norms and biases.

Muon (momentum, then orthogonalization by a Newton-Schulz iteration) learned to copy ids within minutes here
where AdamW alone had not after the same time.
"""

from __future__ import annotations

import torch

from tools.reference.model import Weights

# Coefficients of the quintic Newton-Schulz iteration of Muon.
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalize(stack: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Nearest semi-orthogonal matrices of a stack (K, rows, columns), approximately, in bfloat16."""
    x = stack.to(torch.bfloat16)
    wide = x.shape[1] > x.shape[2]
    if wide:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return (x.transpose(1, 2) if wide else x).float()


class Optimizer:
    """Updates the weights in place.

    Parameters
    ----------
    weights : Weights
        The tensors to train; each must require a gradient.
    muon_rate, adam_rate : float
        Peak learning rates.
    decay : float
        Decoupled weight decay of the matrices.
    """

    def __init__(self, weights: Weights, *, muon_rate: float, adam_rate: float, decay: float) -> None:
        self._muon_rate = muon_rate
        self._decay = decay
        self._groups: dict[tuple[int, int], list[torch.Tensor]] = {}
        rest: list[torch.Tensor] = []
        for name, tensor in weights.items():
            if name.startswith("blk.") and tensor.dim() == 2:
                self._groups.setdefault((tensor.shape[0], tensor.shape[1]), []).append(tensor)
            else:
                rest.append(tensor)
        self._momenta = {key: torch.zeros(len(group), *key) for key, group in self._groups.items()}
        self._adam_rate = adam_rate
        self._adam = torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.98), weight_decay=0.0)
        self._all = list(weights.values())

    def step(self, scale: float) -> None:
        """One update at `scale` times the peak rates; clears the gradients."""
        torch.nn.utils.clip_grad_norm_(self._all, 1.0)
        for group in self._adam.param_groups:
            group["lr"] = self._adam_rate * scale
        self._adam.step()
        with torch.no_grad():
            for key, tensors in self._groups.items():
                gradient = torch.stack([t.grad for t in tensors])
                momentum = self._momenta[key]
                momentum.mul_(0.95).add_(gradient)
                update = orthogonalize(gradient + 0.95 * momentum)
                rate = self._muon_rate * scale * max(1.0, key[0] / key[1]) ** 0.5
                for tensor, change in zip(tensors, update, strict=True):
                    tensor.mul_(1.0 - self._muon_rate * scale * self._decay).sub_(change, alpha=rate)
        for tensor in self._all:
            tensor.grad = None

    def state(self) -> dict[str, object]:
        """Everything needed to go on."""
        return {"adam": self._adam.state_dict(), "momenta": list(self._momenta.values())}

    def restore(self, state: dict[str, object]) -> None:
        """Go on from `state()`."""
        self._adam.load_state_dict(state["adam"])
        momenta = state["momenta"]
        assert isinstance(momenta, list)
        for mine, kept in zip(self._momenta.values(), momenta, strict=True):
            mine.copy_(kept)
