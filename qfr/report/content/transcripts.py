"""Episodes as the page's viewer reads them: packed per cell, equal turns once, compressed.

The page shows two transcripts side by side and marks the fault and the first place where they part. Every
text is clipped; what was left out for size is said in words.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from qfr.analysis.diagnostics.divergence import Divergences, Phase
from qfr.analysis.trials import FOREIGN
from qfr.facts import CellFacts
from qfr.records import Episode, Policy, Turn
from qfr.report.tables.formats import spelled
from qfr.scoring import score

#: A longer text of one turn is cut in the viewer; the log holds it whole.
LONGEST_TURN = 3_000
#: Tokens of one turn whose ids and margins are kept.
MOST_TOKENS = 400
#: The packed transcripts of one page stay below this, in bytes.
MOST_BYTES = 6_000_000

_Json = None | bool | int | float | str | list["_Json"] | dict[str, "_Json"]


@dataclass(frozen=True)
class Packed:
    """Transcripts of one cell."""

    facts: CellFacts
    tasks: tuple[str, ...]
    episodes: int
    data: str
    # Base64 of gzip of JSON.


@dataclass(frozen=True)
class Parting:
    """Where the episodes of two cells part, in counts."""

    cells: tuple[str, ...]
    # cell_ids of both.
    model: str
    prompt: str
    fault: str
    first: str
    second: str
    # The two presets (or prompts).
    paired: int
    parted: int
    at_narrowest: int
    with_token: int
    by_phase: tuple[tuple[Phase, int], ...]

    @classmethod
    def of(cls, sides: tuple[CellFacts, CellFacts], found: Divergences) -> Parting:
        """Of two cells of one model."""
        first, second = sides
        return cls(
            cells=(first.cell_id, second.cell_id),
            model=first.model,
            prompt=first.prompt,
            fault=first.fault,
            first=first.quant,
            second=second.quant,
            paired=len(found.pairs),
            parted=found.parted,
            at_narrowest=found.at_narrowest,
            with_token=found.with_token,
            by_phase=found.by_phase,
        )


@dataclass(frozen=True)
class Transcripts:
    """What the viewer can show."""

    cells: tuple[Packed, ...]
    partings: tuple[Parting, ...]
    # The highest preset against each other one.
    left_out: str
    # One sentence; empty when nothing was.


def pack(facts: CellFacts, episodes: Sequence[Episode], ep_min_calls: int) -> Packed:
    """Pack the transcripts of one cell.

    Parameters
    ----------
    ep_min_calls : int
        As the scorer's.
    """
    imported = facts.executor == FOREIGN
    places: dict[Turn, int] = {}
    rows: list[_Json] = []
    for episode in episodes:
        turns: list[_Json] = [places.setdefault(turn, len(places)) for turn in episode.turns]
        scores = [score(episode, policy, ep_min_calls=ep_min_calls) for policy in Policy]
        trace = episode.trace
        rows.append(
            {
                "task": spelled(episode.task),
                "fault": str(episode.fault),
                "site": None if trace is None else trace.site,
                "tool": None if trace is None else spelled(trace.tool),
                "trial": episode.trial,
                # Trials of an imported log are chosen one by one.
                **({"repeat": episode.trial} if imported else {}),
                "ending": str(episode.ending),
                # A log of another program has no answer: ours says its success.
                "answer": None if imported or episode.answer is None else _clipped(episode.answer),
                "gold": _clipped(episode.gold),
                "good": [one.success for one in (scores[:1] if imported else scores)],
                "reason": [one.reason for one in scores],
                "fired": None if trace is None else trace.fired,
                "turns": turns,
            }
        )
    plain = {"turns": [_turn(turn) for turn in places], "episodes": rows}
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    data = base64.b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode("ascii")
    tasks = tuple(dict.fromkeys(spelled(episode.task) for episode in episodes))
    return Packed(facts, tasks, len(rows), data)


def fitting(packed: Sequence[Packed], most_bytes: int = MOST_BYTES) -> tuple[tuple[Packed, ...], int]:
    """Return as many cells as fit on the page, in order, and how many do not."""
    kept, total = [], 0
    for one in packed:
        total += len(one.data)
        if total > most_bytes:
            break
        kept.append(one)
    return tuple(kept), len(packed) - len(kept)


def _turn(turn: Turn) -> _Json:
    made, answer = turn.generation, turn.observation
    margins: list[_Json] = [
        round(margin, 3) if math.isfinite(margin) else None for margin in made.margins[:MOST_TOKENS]
    ]
    tokens: list[_Json] = list(made.token_ids[:MOST_TOKENS])
    # An imported log keeps a call apart from what was said.
    apart = turn.call is not None and turn.call.tool not in made.text
    return {
        "text": _clipped(made.text),
        "call": _clipped(f"{turn.call.tool} {turn.call.arguments}") if turn.call and apart else None,
        "answer": _clipped("\n".join(step.observation.text for step in turn.steps)),
        "ok": all(step.observation.ok for step in turn.steps),
        "channel": None if answer.channel is None else str(answer.channel),
        "injected": any(step.observation.injected for step in turn.steps),
        "parse": str(turn.parse),
        "stop": str(made.stop),
        "tokens": tokens,
        "margins": margins,
    }


def _clipped(text: str) -> str:
    if len(text) > LONGEST_TURN:
        text = f"{text[:LONGEST_TURN]}… ({len(text):,} characters)"
    return spelled(text)
