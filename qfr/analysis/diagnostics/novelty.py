"""Does another preset fail in new ways, or in the same ways more often? (Jang 2026: failure-set invariance)

An error's *signature* is its channel, the tool (for an invented tool: the invented name) and a detail: the
argument keys of the call, or for an unreadable turn whether it was cut off. Signatures hold no values, so
that one slip counts as one signature in every task.

An agent that loops repeats one failure many times, and the episodes of one task share their beginning. So new
ways are counted once per episode (an *occurrence*) on both sides, and what is expected is said of *new
tasks*: the same tasks played again by a deterministic agent would bring nothing new.

Jang reports a rank correlation and a share of novel events without saying over which set the correlation
runs, so both are given: over all signatures of either log (absent counts 0), and over those that both have.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from qfr.analysis.diagnostics.log import Log, require
from qfr.analysis.diagnostics.resampled import DEFAULT, Sums, ratios
from qfr.canonical import quote, read_json
from qfr.errors import TableError
from qfr.records import Channel, StopReason
from qfr.stats.association import Correlation, spearman
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import IntArray


@dataclass(frozen=True, order=True)
class Signature:
    """In which way a call failed."""

    channel: str
    tool: str
    # As the model wrote it; empty where no call could be read.
    detail: str
    # Argument keys, or how the turn could not be read.

    @property
    def text(self) -> str:
        """In one line: `arguments get_order(id)`."""
        if not self.tool:
            return f"{self.channel} {self.detail}"
        return f"{self.channel} {self.tool}({self.detail})"


@dataclass(frozen=True)
class SignatureCount:
    """How often one signature occurs on either side."""

    signature: Signature
    reference: int
    other: int


@dataclass(frozen=True)
class Novelty:
    """The failures of another log against those of a reference log."""

    channel: str | None
    # Restricted to one channel; None for all.
    reference_events: int
    other_events: int
    # Failed calls.
    reference_signatures: int
    other_signatures: int
    shared_signatures: int
    correlation: Correlation
    # Spearman's rank correlation of counts over all signatures of either log.
    correlation_shared: Correlation
    # The same over the signatures that both have.
    novel_signatures: int
    # Signatures of the other that the reference does not have.
    other_occurrences: int
    # Signatures of the other's episodes, each once per episode.
    novel_occurrences: int
    # Those of them that the reference does not have.
    novel_share: Estimate
    # novel_occurrences / other_occurrences; the other's tasks are resampled, the reference's set stays.
    expected_share: float | None
    # What the reference itself would show on new tasks (after Good and Turing): the share of its occurrences
    # whose signature no other of its tasks has. None without a failed call.
    singletons: int
    # Signatures that one task of the reference alone has.
    reason: str | None
    # Why the expectation is None.
    counts: tuple[SignatureCount, ...]
    # Every signature, by the sum of both counts, largest first.


def novelty(
    reference: Log, other: Log, *, rng: Generator, channel: Channel | None = None, options: Options = DEFAULT
) -> Novelty:
    """Compare the failures of two logs by signature.

    Parameters
    ----------
    channel : Channel, optional
        Only failures of this channel (Jang's figures are of invented tool names).
    options : Options
        Level and resamples of the novel share's interval.
    """
    first, second = (_signatures(log, channel) for log in (reference, other))
    before, after = Counter(first.names), Counter(second.names)
    counted = [SignatureCount(one, before[one], after[one]) for one in sorted({*before, *after})]
    low = np.array([one.reference for one in counted], dtype=np.float64)
    high = np.array([one.other for one in counted], dtype=np.float64)
    both, new = (low > 0) & (high > 0), low == 0
    fresh = np.array([before[name] == 0 for name, _ in second.occurrences], dtype=np.bool_)
    rows = np.array([row for _, row in second.occurrences], dtype=np.int64)
    tops, bottoms = (
        other.over_episodes(np.bincount(chosen, minlength=other.n_episodes)) for chosen in (rows[fresh], rows)
    )
    (share,) = ratios(Sums(tops[:, None], bottoms[:, None]), rng=rng, options=options)
    carriers = Counter(
        name for name, _ in {(name, reference.task_of[row]) for name, row in first.occurrences}
    )
    alone = sum(carriers[name] == 1 for name, _ in first.occurrences)
    n = len(first.occurrences)
    return Novelty(
        channel=None if channel is None else str(channel),
        reference_events=len(first.names),
        other_events=int(high.sum()),
        reference_signatures=int((low > 0).sum()),
        other_signatures=int((high > 0).sum()),
        shared_signatures=int(both.sum()),
        correlation=spearman(low, high),
        correlation_shared=spearman(low[both], high[both]),
        novel_signatures=int(new.sum()),
        other_occurrences=rows.size,
        novel_occurrences=int(fresh.sum()),
        novel_share=share,
        expected_share=alone / n if n else None,
        singletons=sum(count == 1 for count in carriers.values()),
        reason=None if n else "the reference has no failed call",
        counts=tuple(sorted(counted, key=lambda one: (-one.reference - one.other, one.signature))),
    )


@dataclass(frozen=True, eq=False)
class _Signed:
    """Failed calls of one log."""

    names: list[Signature]
    # Signature of each.
    episode: IntArray
    # Row of its episode.

    @property
    def occurrences(self) -> list[tuple[Signature, int]]:
        """Each signature once per episode, with the episode's row."""
        return list(dict.fromkeys(zip(self.names, self.episode.tolist(), strict=True)))


def _signatures(log: Log, channel: Channel | None) -> _Signed:
    require(log.calls, ("stop",), f"calls of {log.name}")
    mask = log.erred if channel is None else log.in_channel(str(channel))
    failed = log.calls[mask]
    cut = failed["stop"] != str(StopReason.end_of_generation)
    # There are few distinct failures: each is read once.
    known: dict[tuple[str, object, object, bool], Signature] = {}
    names = []
    for row in zip(failed["channel"], failed["tool"], failed["arguments"], cut, strict=True):
        if row not in known:
            known[row] = _signature(*row)
        names.append(known[row])
    return _Signed(names, log.episode_of[mask])


def _signature(channel: str, tool: object, arguments: object, cut: bool) -> Signature:
    name = tool if isinstance(tool, str) else ""
    if channel == str(Channel.tool_name):
        return Signature(channel, name, "")
    if isinstance(arguments, str):
        return Signature(channel, name, ", ".join(_keys(arguments)))
    return Signature(channel, name, "cut off" if cut else "unreadable")


def _keys(arguments: str) -> list[str]:
    """Return the keys of an arguments object in canonical JSON."""
    try:
        value = read_json(arguments)
    except ValueError:
        raise TableError(
            f"arguments that are no JSON: {quote(arguments)}", hint="the calls table is damaged"
        ) from None
    return sorted(value) if isinstance(value, dict) else []
