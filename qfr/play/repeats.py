"""Whether a served model says the same twice: an episode repeated before the first cell is played."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from qfr.engine.openai.engine import OpenAIEngine
from qfr.engine.openai.fields import beside_of, elsewhere
from qfr.episode import Episodes, Rules
from qfr.records import Episode, FaultKind
from qfr.world.base import World

UNKNOWN = "not bit-reproducible"


def repeat_of(
    engine: OpenAIEngine, concurrency: int, world: World, prompt: str, rules: Rules, where: str | None = None
) -> str:
    """Play the first task's clean episode twice, or as often as conversations will be held at a time.

    Nothing of it is recorded. Texts alone are compared: a server shows neither tokens nor logits.

    Returns
    -------
    str
        "2 repetitions of the first episode agreed …", or "not bit-reproducible: …" and the first turn that
        differed.

    Raises
    ------
    MachineryError
        The server broke, or what the model writes comes in another field than the text.
    """
    copies = max(2, concurrency)
    players = [Episodes(engine.another(), world, prompt, rules) for _ in range(copies)]

    def play(player: Episodes) -> Episode:
        return player.play("", world.tasks[0], FaultKind.none, None)

    with ThreadPoolExecutor(concurrency) as pool:
        played = list(pool.map(play, players))
    turns = [turn.generation for one in played for turn in one.turns]
    if not any(turn.text.strip() for turn in turns):
        told = next((found for turn in turns if (found := beside_of(turn))), None)
        if told is not None:
            raise elsewhere(told, where)
    return verdict(played, concurrency)


def verdict(played: Sequence[Episode], concurrency: int) -> str:
    """What repetitions of one episode show."""
    texts = [[turn.generation.text for turn in one.turns] for one in played]
    first, *others = texts
    for other in others:
        if other != first:
            pairs = enumerate(zip(first, other, strict=False))
            turn = next((at for at, (a, b) in pairs if a != b), min(len(first), len(other)))
            return (
                f"{UNKNOWN}: turn {turn} of {_times(played)} of the first episode differed{_how(concurrency)}"
            )
    return f"{_times(played)} of the first episode agreed ({len(first)} turns each{_how(concurrency)})"


def _times(played: Sequence[Episode]) -> str:
    return f"{len(played)} repetitions"


def _how(concurrency: int) -> str:
    return f", {concurrency} at a time" if concurrency > 1 else ""
