"""A grid played by qfr, by the naive loop, by Inspect AI with a server, and the floor under all of them.

    python -m benchmarks.compare --inspect INSPECT/bin/python

Every round runs each way once, in an order that turns by one from round to round, on the same model files,
prompts, tasks and faults; ratios are taken within a round and given as median [lowest, highest] over the
rounds. Outcomes (ending, answer, both scores) are compared episode by episode. `--also KEY=VALUE` adds
run.py with that override as a way of its own. Without `--inspect` those two ways are left out; the slow ways
(`naive, reset` and Inspect AI's) take part in the first `--slow-rounds` rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.composing import make_job
from benchmarks.job import Job, Measured, read_measured, write_job
from benchmarks.processes import run
from benchmarks.sweeping import read_sweep, share_files

OURS, ALONE = "run.py", "walks alone"
_HEAD = (
    "way | rounds | episodes, s | to run.py | episodes, CPU s | to walks alone | command, s | to run.py | "
    "CPU, s | engine, s | evaluated | generated | peak, MB | other outcomes"
)
_SLOW = ("naive, reset", "Inspect")


@dataclass(frozen=True)
class Setting:
    """What all ways have in common."""

    folder: Path
    # For stores, logs and results of this comparison.
    kept: Path
    # A store that holds the derived model files.
    overrides: tuple[str, ...]
    # Of all cells: agent, suite.
    quants: tuple[str, ...]
    prompts: tuple[str, ...]
    server: str
    # Interpreter that runs llama-cpp-python's server.
    inspect: str | None
    # Interpreter of Inspect AI's environment.

    @property
    def job(self) -> Path:
        """The job's file."""
        return self.folder / "job.json"


def sweep_command(setting: Setting, root: Path, more: Sequence[str]) -> list[str]:
    """`run.py` for the whole grid."""
    axes = [f"quant={','.join(setting.quants)}", f"prompt={','.join(setting.prompts)}", "fault=et"]
    own = [f"tracking.root={root}", f"hydra.sweep.dir={root}/multirun"]
    return [sys.executable, "run.py", *setting.overrides, *axes, *own, *more]


def play_ours(setting: Setting, label: str, more: Sequence[str]) -> Measured:
    """One whole `run.py` in a fresh store."""
    root = setting.folder / f"{label}-store"
    share_files(root, setting.kept)
    ran = run(sweep_command(setting, root, more), log=setting.folder / f"{label}.log")
    found = read_sweep(root)
    return Measured(
        command_seconds=ran.seconds,
        cpu_seconds=ran.cpu_seconds,
        episode_seconds=found.walk_seconds,
        episode_cpu=None,
        engine_seconds=found.engine_seconds,
        evaluated=found.evaluated,
        generated=found.generated,
        peak_bytes=ran.peak_bytes,
        outcomes=found.outcomes,
    )


def play_other(setting: Setting, label: str, command: Sequence[str]) -> Measured:
    """One of the other ways, in a process of its own that writes its result."""
    out = setting.folder / f"{label}.json"
    filled = [part.replace("OUT", str(out)).replace("JOB", str(setting.job)) for part in command]
    ran = run(filled, {"PYTHONPATH": str(Path.cwd())}, setting.folder / f"{label}.log")
    measured = read_measured(out)
    if command[2] == "benchmarks.floor":
        return replace(measured, peak_bytes=ran.peak_bytes)
    return replace(
        measured, command_seconds=ran.seconds, cpu_seconds=ran.cpu_seconds, peak_bytes=ran.peak_bytes
    )


def other_ways(setting: Setting) -> dict[str, list[str]]:
    """Command lines of what qfr is measured against."""
    here, own = [sys.executable, "-m"], [*setting.overrides, root_of(setting)]
    ways = {
        "floor": [*here, "benchmarks.floor", "JOB", "OUT", *own],
        "floor, turns at once": [*here, "benchmarks.floor", "JOB", "OUT", "--turns-at-once", *own],
        ALONE: [*here, "benchmarks.walks", "JOB", "OUT", *own],
        "naive": [*here, "benchmarks.naive", "JOB", "OUT"],
        "naive, reset": [*here, "benchmarks.naive", "JOB", "OUT", "--reset"],
    }
    if setting.inspect is not None:
        task = [setting.inspect, "-m", "benchmarks.inspect_task", "JOB", "OUT", "--python", setting.server]
        ways |= {f"Inspect, {n}": [*task, "--connections", str(n)] for n in (1, 4)}
    return ways


def root_of(setting: Setting) -> str:
    """Override that finds the derived files."""
    return f"tracking.root={setting.kept}"


def differences(ours: Measured, other: Measured) -> str:
    """Episodes whose outcome is not ours."""
    mine, its = ({one.key: one for one in way.outcomes} for way in (ours, other))
    changed = sum(mine[key] != its[key] for key in mine.keys() & its.keys())
    unmatched = len(mine.keys() ^ its.keys())
    return f"{changed}" + (f" + {unmatched} unmatched" if unmatched else "") + f" of {len(mine)}"


def spread(values: Sequence[float]) -> str:
    """Median [lowest, highest]."""
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def table(rounds: Sequence[dict[str, Measured]]) -> str:
    """All ways in one Markdown table."""
    lines = [f"| {_HEAD} |", "|" + "---|" * len(_HEAD.split("|"))]
    lines += [f"| {way} | {' | '.join(_row(rounds, way))} |" for way in rounds[0]]
    return "\n".join(lines)


def _row(rounds: Sequence[dict[str, Measured]], way: str) -> list[str]:
    taken = [one for one in rounds if way in one]
    runs = [one[way] for one in taken]
    engine = [one.engine_seconds for one in runs if one.engine_seconds is not None]
    busy = [one.episode_cpu for one in runs if one.episode_cpu is not None]
    by_cpu = [
        mine.episode_cpu / alone
        for mine, alone in ((one[way], one[ALONE].episode_cpu) for one in taken)
        if mine.episode_cpu is not None and alone is not None
    ]
    return [
        str(len(runs)),
        f"{statistics.median(one.episode_seconds for one in runs):.2f}",
        spread([one[way].episode_seconds / one[OURS].episode_seconds for one in taken]),
        f"{statistics.median(busy):.2f}" if busy else "",
        spread(by_cpu) if by_cpu else "",
        f"{statistics.median(one.command_seconds for one in runs):.1f}",
        spread([one[way].command_seconds / one[OURS].command_seconds for one in taken]),
        f"{statistics.median(one.cpu_seconds for one in runs):.1f}",
        f"{statistics.median(engine):.2f}" if engine else "",
        f"{runs[0].evaluated:,}",
        f"{runs[0].generated:,}",
        f"{max(one.peak_bytes for one in runs) / 1e6:.0f}",
        differences(rounds[0][OURS], runs[0]),
    ]


def share(rounds: Sequence[dict[str, Measured]]) -> str:
    """How much of our wall time is the engine's."""
    ours = [one[OURS] for one in rounds]
    walks = [(one.engine_seconds or 0.0) / one.episode_seconds for one in ours]
    whole = [(one.engine_seconds or 0.0) / one.command_seconds for one in ours]
    return f"engine share of run.py: of its walks {spread(walks)}, of the whole command {spread(whole)}"


def main() -> None:
    """Compare."""
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(
            folder=Path(folder),
            kept=arguments.kept,
            overrides=(f"model={arguments.agent}", f"suite={arguments.suite}"),
            quants=tuple(arguments.quants.split(",")),
            prompts=tuple(arguments.prompts.split(",")),
            server=arguments.server,
            inspect=arguments.inspect,
        )
        job = make_job([*setting.overrides, root_of(setting)], setting.quants, setting.prompts)
        write_job(job, setting.job)
        rounds: list[dict[str, Measured]] = []
        for at in range(arguments.rounds):
            rounds.append(play_round(setting, arguments.also, at, slow=at < arguments.slow_rounds))
            # An hour's work is not lost with a later round.
            print(table(rounds), file=sys.stderr, flush=True)
    print(describe(job, arguments.agent, arguments.rounds))
    print(table(rounds))
    print(share(rounds))


def play_round(setting: Setting, also: Sequence[str], at: int, *, slow: bool) -> dict[str, Measured]:
    """Each way once; the slow ones on demand."""
    others = {name: way for name, way in other_ways(setting).items() if slow or not name.startswith(_SLOW)}
    mine = {OURS: list[str]()} | {f"{OURS} {more}": more.split() for more in also}
    names = [*mine, *others]
    done: dict[str, Measured] = {}
    for name in names[at % len(names) :] + names[: at % len(names)]:
        label = f"{at}-{names.index(name)}"
        if name in mine:
            done[name] = play_ours(setting, label, mine[name])
        else:
            done[name] = play_other(setting, label, others[name])
        took = f"episodes {done[name].episode_seconds:.2f} s, command {done[name].command_seconds:.1f} s"
        print(f"round {at + 1}, {name}: {took}", file=sys.stderr, flush=True)
    return {name: done[name] for name in names}


def describe(job: Job, agent: str, rounds: int) -> str:
    """What was played."""
    prompts = len({cell.prompt for cell in job.cells})
    return (
        f"{agent}: {prompts} prompts x {len(job.presets)} presets, {sum(job.families.values())} tasks, "
        f"{rounds} rounds, {job.n_threads} thread(s), context {job.n_ctx}"
    )


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agent", default="ref_llama")
    parser.add_argument("--suite", default="orders20_ref")
    parser.add_argument("--quants", default="q8_0,q4_k_m,q3_k_m")
    parser.add_argument("--prompts", default="P0,P1,P2,P3,P4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow-rounds", type=int, default=99)
    parser.add_argument("--also", action="append", default=[], help="overrides of one more run.py")
    parser.add_argument("--inspect", help="interpreter of Inspect AI's virtual environment")
    parser.add_argument(
        "--server", default=sys.executable, help="interpreter that has llama-cpp-python[server]"
    )
    parser.add_argument("--kept", type=Path, default=Path("mlruns"), help="store with the derived files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
