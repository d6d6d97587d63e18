"""Independent random streams by name, so that adding an estimate changes no other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np


def stream(seed: int, names: Sequence[str]) -> np.random.Generator:
    """Return the generator that belongs to a seed and a list of names.

    The same seed and names give the same numbers on every machine and in every order of work; other names
    give an independent stream.

    Parameters
    ----------
    seed : int
        Non-negative.
    """
    digest = hashlib.sha256(json.dumps(list(names)).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4").tolist()
    return np.random.default_rng(np.random.SeedSequence([seed, *words]))
