"""Is a cheap look right, and is it cheap? Every played preset of a store, looked at from a reference.

    python run.py -m model=ref_llama,ref_qwen quant=f16,q8_0,… prompt=P0 fault=et suite=orders20_ref
    python -m benchmarks.look --reference f16

An episode that the look calls the same has to be the one that was played, token by token: a *miss* where it
is not. *Spliced* are the successes when only the others are taken from play; they have to equal those of full
play. Time is processor time of one worker: of the look (without KL divergences, its trial of the noise
included) and of the same cell played whole. Exit code 1 where there is a miss or a difference.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from qfr.audit.looking import Seen, State, look
from qfr.audit.replay import Finished, finished_run
from qfr.cell import Key, Track, key_of, walk
from qfr.engine.files.resolve import resolve
from qfr.engine.worker import FollowingWorker, WorkerEngine
from qfr.episode import Episodes
from qfr.play.engine_cache import rules_of
from qfr.records import Episode, FaultKind, Policy
from qfr.scope import differ, scope_of
from qfr.scoring import score
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import open_store


def main() -> int:
    """Print one row per preset."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default="mlruns")
    parser.add_argument("--reference", default="f16")
    arguments = parser.parse_args()
    store = open_store(None, Path(arguments.root), "qfr")
    cells = [one for one in read_cells(store).cells if one.facts.fault != FaultKind.none]
    wrong = 0
    print("| agent | preset | same | close | flip | misses | spliced differs | look, CPU s | play, CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for first in cells:
        if first.facts.quant.lower() != arguments.reference.lower():
            continue
        reference = finished_run(store, first)
        for cell in cells:
            if cell is first or differ(scope_of(first.facts), scope_of(cell.facts), ("quant",)):
                continue
            played = finished_run(store, cell)
            seen, looked = _look(reference, played)
            misses, spliced = _misses(reference, played, seen), _spliced(reference, played, seen)
            wrong += misses + spliced
            close, flips = (
                sum(one.state is state for one in seen.episodes) for state in (State.close, State.flipped)
            )
            same = f"{len(seen.same)} of {len(seen.episodes)}"
            times = f"{looked:.1f}", f"{_play(played):.1f}"
            row = (cell.facts.model, cell.facts.quant, same, close, flips, misses, spliced, *times)
            print(f"| {' | '.join(map(str, row))} |", flush=True)
    return int(wrong > 0)


def _look(reference: Finished, played: Finished) -> tuple[Seen, float]:
    config = played.config
    model = resolve(config.model, config.quant, Path(config.tracking.root) / "models")
    candidate = FollowingWorker(model, config.engine, reference.cell.facts.n_ctx)
    try:
        began = _cpu(candidate.pid)
        seen = look(reference, candidate)
        return seen, _cpu(candidate.pid) - began
    finally:
        candidate.close()


def _play(played: Finished) -> float:
    """Processor seconds of the clean pass and the fault cell, played again by one worker."""
    config, facts = played.config, played.cell.facts
    model = resolve(config.model, config.quant, Path(config.tracking.root) / "models")
    engine = WorkerEngine(model, config.engine, facts.n_ctx)
    try:
        began = _cpu(engine.pid)
        episodes = Episodes(engine, played.world, played.prompt.text, rules_of(config))
        start, fault = (
            Track(name, kind, config.suite.gate, {})
            for name, kind in ((facts.clean_id, FaultKind.none), (facts.cell_id, config.fault.kind))
        )
        walk(episodes, start, (fault,), lambda _track, _episode, _seconds: None)
        return _cpu(engine.pid) - began
    finally:
        engine.close()


def _cpu(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _all(one: Finished) -> dict[Key, Episode]:
    return {key_of(episode): episode for episode in (*one.clean, *one.episodes)}


def _misses(reference: Finished, played: Finished, seen: Seen) -> int:
    mine, theirs = _all(reference), _all(played)
    return sum(key not in theirs or _tokens(mine[key]) != _tokens(theirs[key]) for key in seen.same)


def _tokens(episode: Episode) -> list[tuple[int, ...]]:
    return [turn.generation.token_ids for turn in episode.turns]


def _spliced(reference: Finished, played: Finished, seen: Seen) -> int:
    """Episodes whose success differs between full play and play of what is not the same."""
    mine, theirs = _all(reference), _all(played)
    taken = {
        key: mine[key] if key in seen.same and (key[0], -1) in seen.same else theirs[key] for key in theirs
    }
    least = played.config.scorer.ep_min_calls
    return sum(
        score(taken[key], policy, ep_min_calls=least).success
        != score(one, policy, ep_min_calls=least).success
        for key, one in theirs.items()
        for policy in Policy
    )


if __name__ == "__main__":
    sys.exit(main())
