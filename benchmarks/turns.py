"""A turn of which an interface tells only the text and the number of tokens."""

from __future__ import annotations

from qfr.records import Generation, StopReason


def generation(text: str, count: int, *, cut: bool) -> Generation:
    """A turn for the episode's loop; token ids and margins are not told by chat interfaces."""
    stop = StopReason.max_tokens if cut else StopReason.end_of_generation
    return Generation(text, (0,) * count, stop, 0, (0.0,) * count, "", False)
