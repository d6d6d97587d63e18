"""Sampling: which token a turn goes on with, by llama.cpp's filters and noise that order cannot move.

The choice is the largest of filtered logit ÷ temperature + Gumbel noise, which draws from the softmax of the
filtered logits (Gumbel-max). The noise of a token is a function of seed, task, trial, turn, position and
token alone: not of the order of episodes, of workers, streams, forks or resumes. Presets of one model share
it (common random numbers, arXiv:2502.01754) unless `engine.noise=own` adds the file's digest.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Philox
from numpy.typing import NDArray

from qfr.choices import Noise
from qfr.config import EngineConfig

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Filters act in llama.cpp's order: top_k, top_p, min_p, then temperature."""

    temperature: float
    # Above 0.
    top_k: int
    # Most likely tokens that stay; 0 = all.
    top_p: float
    # The fewest most likely tokens whose probabilities reach this sum stay; 1 = all.
    min_p: float
    # Tokens at least this likely, relative to the most likely one, stay; 0 = all.
    seed: int
    own: str = ""
    # Digest of the file whose noise is its own; "" = shared by all presets.

    @classmethod
    def of(cls, config: EngineConfig, model_sha256: str) -> Sampling | None:
        """What a configuration asks for; None = greedy decoding."""
        if config.temperature == 0:
            return None
        own = model_sha256 if config.noise is Noise.own else ""
        return cls(config.temperature, config.top_k, config.top_p, config.min_p, config.seed, own)

    def request(self) -> dict[str, float]:
        """Fields of a server's request; filters that change nothing are left out."""
        fields: dict[str, float] = {"temperature": self.temperature, "top_p": self.top_p}
        return (
            fields
            | ({"top_k": self.top_k} if self.top_k else {})
            | ({"min_p": self.min_p} if self.min_p else {})
        )

    def draw(self, task: str, trial: int, turn: int) -> Draw:
        """The choices of one turn.

        Parameters
        ----------
        task : str
            The task's text: equal for all presets, prompts and faults.
        trial : int
        turn : int
            From 0.
        """
        return Draw(self, turn_key(self.seed, self.own, task, trial, turn))


def turn_key(seed: int, own: str, task: str, trial: int, turn: int) -> bytes:
    """Digest of what a turn's noise depends on, 32 bytes."""
    text = "\0".join(("qfr noise 1", str(seed), own, str(trial), str(turn), task))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Draw:
    """The choices of one turn, token by token."""

    def __init__(self, sampling: Sampling, key: bytes) -> None:
        self._sampling = sampling
        self.key = np.frombuffer(key[:16], dtype="<u8")

    def choose(self, logits: Logits, position: int) -> int:
        """The token at a position of the turn.

        Parameters
        ----------
        logits : ndarray of float32, shape (n_vocab,)
        position : int
            From 0.
        """
        kept = candidates(logits, self._sampling)
        raw = noise_bits(self.key, position, len(logits))
        scores = logits[kept].astype(np.float64) / self._sampling.temperature
        bits = raw[kept]
        # Few tokens can win: those near the top, and those far from it whose noise is rare. Only their noise
        # is worth its logarithms.
        top = int(scores.argmax())
        far = scores[top] - _NEAR
        rare = math.exp(-math.exp(-(_NEAR + gumbel(bits[top : top + 1])[0])))
        able = np.flatnonzero((scores >= far) | (bits >= np.uint64(min(rare, 1 - 2.0**-53) * 2.0**64)))
        return int(kept[able[(scores[able] + gumbel(bits[able])).argmax()]])


#: Scaled logits below the largest one within which a token can win with ordinary noise.
_NEAR = 4.0


def candidates(logits: Logits, sampling: Sampling) -> NDArray[np.int64]:
    """Ids of the tokens that the filters leave, at least one."""
    top = float(logits.max())
    kept = np.arange(len(logits))
    if 0 < sampling.top_k < len(logits):
        lowest = np.partition(logits, -sampling.top_k)[-sampling.top_k]
        above, level = np.flatnonzero(logits > lowest), np.flatnonzero(logits == lowest)
        # Among equal logits the lower ids stay.
        kept = np.sort(np.concatenate([above, level[: sampling.top_k - len(above)]]))
    if sampling.top_p < 1:
        kept = _nucleus(logits, kept, sampling.top_p)
    if sampling.min_p > 0:
        kept = kept[logits[kept] >= top + math.log(sampling.min_p)]
    return kept


def _nucleus(logits: Logits, kept: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """The fewest most likely tokens whose probabilities reach a share."""
    chosen = logits[kept].astype(np.float64)
    weights = np.exp(chosen - chosen.max())
    wanted = share * weights.sum()
    # Sort the likely ones alone: where these reach the share, the others are not in it.
    likely = np.flatnonzero(weights > 1e-6)
    if weights[likely].sum() < wanted:
        likely = np.arange(len(weights))
    order = likely[np.argsort(-chosen[likely], kind="stable")]
    count = int(np.searchsorted(np.cumsum(weights[order]), wanted)) + 1
    return np.sort(kept[order[:count]])


def noise_bits(key: NDArray[np.uint64], position: int, count: int) -> NDArray[np.uint64]:
    """Random bits of every token at one position, shape (count,), from Philox, a counter-based generator."""
    # The counter's low word counts within a position, so that positions never overlap.
    bits: NDArray[np.uint64] = Philox(key=key, counter=[0, position, 0, 0]).random_raw(count)
    return bits


def gumbel(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Gumbel noise of random bits."""
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))
