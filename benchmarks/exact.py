"""Fork against fresh and rerun against rerun on the device at hand, by the digests of all logits."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.forced import Forced
from qfr.cell import Track, walk
from qfr.config import EngineConfig, Gate
from qfr.engine.base import Counters, Engine
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama.engine import LlamaEngine
from qfr.episode import Episodes, Rules
from qfr.records import Episode, FaultKind
from qfr.world.base import World, sites

Digests = dict[tuple[str, int], tuple[str, ...]]
# (task, site or -1) -> digest of each turn's logits.


@dataclass(frozen=True)
class Exactness:
    """How many episodes have the same bits."""

    episodes: int
    fork_is_fresh: int
    # Episodes whose every logit is the same forked and evaluated from nothing.
    rerun_is_rerun: int
    # … and the same again in a second load of the model.
    written_again: int
    # Of `written`: turns that the model wrote itself, twice the same text.
    written: int
    counters: Counters
    # Of the forked walk.

    @property
    def whole(self) -> bool:
        """All are the same."""
        pairs = (self.fork_is_fresh, self.rerun_is_rerun)
        return pairs == (self.episodes,) * 2 and self.written_again == self.written


@dataclass(frozen=True)
class Setup:
    """What is played."""

    world: World
    system: str
    rules: Rules

    def episodes(self, engine: Engine) -> Episodes:
        """Played by an engine."""
        return Episodes(engine, self.world, self.system, self.rules)


def check(file: ModelFile, config: EngineConfig, n_ctx: int, setup: Setup) -> Exactness:
    """Play the suite forked, fresh, and forked again after loading anew.

    The demonstrator writes the turns: the episodes are those of an able agent whatever the weights are.
    """
    engine = LlamaEngine(file, config, n_ctx)
    forked = forked_digests(engine, setup)
    counters = engine.counters()
    fresh = fresh_digests(engine, setup)
    first = written_texts(engine, setup)
    engine.close()
    engine = LlamaEngine(file, config, n_ctx)
    again = forked_digests(engine, setup)
    second = written_texts(engine, setup)
    engine.close()
    return Exactness(
        episodes=len(forked),
        fork_is_fresh=sum(forked[key] == fresh[key] for key in forked),
        rerun_is_rerun=sum(forked[key] == again[key] for key in forked),
        written_again=sum(one == other for one, other in zip(first, second, strict=True)),
        written=len(first),
        counters=counters,
    )


def forked_digests(engine: Engine, setup: Setup) -> Digests:
    """The walk, as a cell plays it."""
    found: Digests = {}

    def record(_track: Track, episode: Episode, _seconds: float) -> None:
        found[(episode.task, -1 if episode.trace is None else episode.trace.site)] = digests(episode)

    clean = Track("", FaultKind.none, Gate.certified, {})
    faults = (Track("", FaultKind.et, Gate.certified, {}),)
    walk(setup.episodes(Forced(engine)), clean, faults, record)
    return found


def fresh_digests(engine: LlamaEngine, setup: Setup) -> Digests:
    """Every episode after the cache was emptied."""
    found: Digests = {}
    for task in setup.world.tasks:
        for site in (None, *sites(task, FaultKind.et)):
            engine.start_over()
            kind = FaultKind.none if site is None else FaultKind.et
            episode = setup.episodes(Forced(engine)).play("", task, kind, site)
            found[(task.id, -1 if site is None else site.index)] = digests(episode)
    return found


def written_texts(engine: Engine, setup: Setup) -> list[str]:
    """The model's own first turn of each task."""
    limit = setup.rules.max_tokens
    return [engine.begin(setup.system, task.text, limit).text for task in setup.world.tasks]


def digests(episode: Episode) -> tuple[str, ...]:
    """Of each turn's logits."""
    return tuple(turn.generation.logits_sha256 for turn in episode.turns)
