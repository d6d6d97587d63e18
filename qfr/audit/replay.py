"""Plays finished cells again and compares what comes out with what was logged. Writes nothing to the store.

Greedy decoding in canonical segments gives the same bytes every time, so a rerun on the same build, file and
device must equal the log, the SHA-256 of every logit vector included. With a changed engine configuration
the same comparison counts what the change costs: episodes whose texts, and whose scores, differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qfr.audit.recorded_cell import recall
from qfr.canonical import sha256_hex
from qfr.cell import Key, Track, key_of
from qfr.config import CellConfig, EngineConfig
from qfr.engine.base import Engine, EngineInfo
from qfr.errors import ConfigError, LogError, MachineryError, UserError
from qfr.grid.checks import build_world, check_cell, suite_digest
from qfr.grid.design import Design, declared_commit
from qfr.identity import clean_of, design_id
from qfr.journal import encode
from qfr.play.engine_cache import Shelf
from qfr.play.episodes import walker
from qfr.play.run_facts import measured_ids
from qfr.prompts import Prompt
from qfr.records import Episode, FaultKind, Policy
from qfr.scoring import score
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.reading.cells import LoggedCell, read_episodes
from qfr.tracking.store import Store
from qfr.world.base import World

# Changes how tokens are evaluated, and nothing else of a cell.
Change = Callable[[EngineConfig], EngineConfig]


@dataclass(frozen=True)
class Finished:
    """A finished run with all that is needed to play it again."""

    cell: LoggedCell
    config: CellConfig
    prompt: Prompt
    # The bytes that the run logged, wherever the file is now.
    world: World
    episodes: tuple[Episode, ...]
    # As logged.
    clean: tuple[Episode, ...]
    # Of its clean pass (its own episodes for fault=none).


@dataclass(frozen=True)
class Comparison:
    """Two sets of episodes of one cell, one by one. Each tuple holds (task, site or -1)."""

    episodes: int
    # That were compared.
    bytes: tuple[Key, ...]
    # Anything differs: a text, a margin, a logit's last bit, or one of the two is missing.
    texts: tuple[Key, ...]
    # The model wrote other tokens, or the episode is missing.
    scores: tuple[Key, ...]
    # Success differs under some policy, or the episode is missing.


@dataclass(frozen=True)
class Rerun:
    """A finished run played again."""

    finished: Finished
    played: tuple[Episode, ...]
    comparison: Comparison
    elsewhere: tuple[str, ...]
    # In what the machine, build or file is not the recorded one: "library_sha256: 12ab… here, 34cd… then".
    # Empty when the cell has the same cell_id here.


def finished_run(store: Store, cell: LoggedCell) -> Finished:
    """Read a run with its transcripts, its clean pass and its configuration.

    Parameters
    ----------
    store : Store
    cell : LoggedCell
        A complete cell as `read_cells` gives it (a fault cell with its clean run).

    Raises
    ------
    LogError
        The log or the prompt is damaged.
    ConfigError
        The configuration or the suite is of another version of qfr.
    TrackingError
        An artifact is missing.
    """
    where = f"{cell.facts.name}, run {cell.run_id}"
    config = recall(cell.facts.config, where=where)
    if cell.parts:
        # A cell joined from shards is played whole: its episodes are the same.
        config = dataclasses.replace(config, suite=dataclasses.replace(config.suite, shard=None))
    check_cell(config)
    data = read_artifact(store, cell.run_id, cell.artifact_uri, "prompt.md")
    if sha256_hex(data) != cell.facts.prompt_sha256:
        raise LogError("prompt.md is not the prompt that the run names", where=where, hint="it was changed")
    if suite_digest(config.suite) != cell.facts.suite_sha256:
        raise ConfigError(
            "the suite's generator gives other tasks here", where=where, hint="use the qfr that ran it"
        )
    episodes = read_episodes(store, cell)
    clean = episodes if cell.clean is None else read_episodes(store, cell.clean)
    tracking = dataclasses.replace(config.tracking, root=str(store.root))
    return Finished(
        cell=cell,
        config=dataclasses.replace(config, tracking=tracking),
        prompt=Prompt(data.decode("utf-8"), cell.facts.prompt_sha256),
        world=build_world(config.suite),
        episodes=episodes,
        clean=clean,
    )


def rerun(
    finished: Finished, shelf: Shelf, *, only: frozenset[Key] | None = None, change: Change | None = None
) -> Rerun:
    """Play a finished run again, whole or some of its episodes.

    Parameters
    ----------
    finished : Finished
    shelf : Shelf
        Where the engine comes from; runs of one file share it.
    only : frozenset of (task, site or -1), optional
        The episodes to play; left out = all that the log holds, in the order of a walk.
    change : callable, optional
        Another engine configuration, for example more streams.

    Raises
    ------
    ModelFileError
        The model file cannot be had here.
    MachineryError
        The engine broke.
    """
    config = finished.config
    if change is not None:
        config = dataclasses.replace(config, engine=change(config.engine))
    engine, _ = shelf.take(config, finished.world, finished.prompt.text)
    played = _play(engine, finished, config, only)
    logged = [one for one in finished.episodes if only is None or key_of(one) in only]
    return Rerun(
        finished=finished,
        played=played,
        comparison=compare(logged, played, ep_min_calls=config.scorer.ep_min_calls),
        elsewhere=_elsewhere(finished, engine.info),
    )


def compare(logged: Sequence[Episode], played: Sequence[Episode], *, ep_min_calls: int = 2) -> Comparison:
    """Set two sets of episodes of one cell side by side, whatever cell_id each carries."""
    left, right = ({key_of(one): one for one in some} for some in (logged, played))
    keys = sorted(left.keys() | right.keys())

    def differing(view: Callable[[Episode], object]) -> tuple[Key, ...]:
        return tuple(
            key for key in keys if key not in left or key not in right or view(left[key]) != view(right[key])
        )

    return Comparison(
        episodes=len(keys),
        bytes=differing(lambda one: encode(dataclasses.replace(one, cell_id=""))),
        texts=differing(lambda one: [turn.generation.token_ids for turn in one.turns]),
        scores=differing(
            lambda one: [score(one, policy, ep_min_calls=ep_min_calls).success for policy in Policy]
        ),
    )


def first_difference(logged: Episode | None, played: Episode | None) -> str:
    """Where two versions of an episode part, in words; empty when they do not."""
    if logged is None or played is None:
        return "not in the log" if logged is None else "not played again"
    for mine, other in zip(logged.turns, played.turns, strict=False):
        if mine.generation.token_ids != other.generation.token_ids:
            return f"turn {mine.index}: another text"
        if mine.generation.logits_sha256 != other.generation.logits_sha256:
            return f"turn {mine.index}: the same text, other logits"
        if mine != other:
            return f"turn {mine.index}: the same text, read or answered otherwise"
    if dataclasses.replace(logged, cell_id="") != dataclasses.replace(played, cell_id=""):
        return "the same turns, another ending or record"
    return ""


def _play(
    engine: Engine, finished: Finished, config: CellConfig, only: frozenset[Key] | None
) -> tuple[Episode, ...]:
    """Play the run's episodes; certified tasks are those of the logged clean pass."""
    facts, kind = finished.cell.facts, config.fault.kind
    played: list[Episode] = []

    def record(_track: Track, episode: Episode, _seconds: float) -> None:
        played.append(episode)

    def track(cell_id: str, of: FaultKind, episodes: Sequence[Episode], *, anew: bool) -> Track:
        # What is not to be played counts as done.
        done = {key_of(one): one for one in episodes if not (anew and (only is None or key_of(one) in only))}
        return Track(cell_id, of, config.suite.gate, done)

    faulted = kind is not FaultKind.none
    start = track(facts.clean_id, FaultKind.none, finished.clean, anew=not faulted)
    faults = (track(facts.cell_id, kind, finished.episodes, anew=True),) if faulted else ()
    # Under another configuration the waves of several streams need not give what was logged.
    same = config.engine == finished.config.engine
    walker(engine, config, finished.world, finished.prompt.text, exact=same)(start, faults, record)
    return tuple(played)


def _elsewhere(finished: Finished, info: EngineInfo) -> tuple[str, ...]:
    """What of the measured identity is not as it was recorded."""
    facts, config = finished.cell.facts, finished.config
    commit = "" if info.kind == "scripted" else declared_commit()[0]
    own, clean = (
        design_id(
            one,
            prompt_sha256=finished.prompt.sha256,
            suite_sha256=facts.suite_sha256,
            llama_commit=commit,
        )
        for one in (config, clean_of(config))
    )
    design = Design(own, clean, finished.prompt, facts.suite_sha256, commit, "")
    if measured_ids(design, info)[0] == facts.cell_id:
        return ()
    pairs = {
        "engine": (facts.engine, info.kind),
        "llama_commit": (facts.llama_commit, info.llama_commit),
        "library_sha256": (facts.library_sha256, info.library_sha256),
        "model_sha256": (facts.model_sha256, info.model_sha256),
        "device": (facts.device, info.device),
        "offloaded_layers": (facts.offloaded_layers, info.offloaded_layers),
        "n_ctx": (facts.n_ctx, info.n_ctx),
    }
    found = [
        f"{key}: {here:.12} here, {then:.12} then"
        if isinstance(here, str) and isinstance(then, str)
        else f"{key}: {here} here, {then} then"
        for key, (then, here) in pairs.items()
        if then != here
    ]
    return tuple(found) or (f"design: {own} here, {facts.design_id} then",)


# What keeps a run from being played again, so that the others go on.
NOT_PLAYED = (UserError, MachineryError)
