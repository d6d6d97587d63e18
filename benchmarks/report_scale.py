"""Time and memory of a large report: 2,000 tasks × 30 cells, about 250,000 episodes.

    python benchmarks/report_scale.py [--tasks 2000] [--models 2] [--prompts 5] [--seed 1]

Synthetic logs with the columns of the tracking store's tables are written to a temporary folder as Parquet;
a fresh process then reads them, computes the report and writes all its files. Aim: one minute, 2 GB, and a
page below 15 MB. Transcripts are not part of it: a page takes at most a few thousand, whatever the grid.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from qfr.facts import CellFacts
from qfr.report.content.build import Material, build_report
from qfr.report.export import write_report

QUANTS = ("Q8_0", "Q4_K_M", "Q3_K_M")
TOOLS = ("get_order", "get_customer", "get_discount", "get_shipping_fee", "submit_answer")
CHANNELS = ("tool_name", "arguments", "entity", "format", "policy")


@dataclass(frozen=True)
class StoredCell:
    """A cell as a report takes it."""

    facts: CellFacts
    episodes: pd.DataFrame
    clean: StoredCell | None


def facts_of(model: str, quant: str, prompt: str, fault: str) -> CellFacts:
    """Facts of a cell; whatever the report does not tell apart is empty."""
    name = f"{model}-{quant}-{prompt}"
    given: dict[str, object] = {
        "model": model, "quant": quant, "prompt": prompt, "fault": fault, "suite": "synthetic",
        "executor": "tolerant", "gate": "certified", "cell_id": f"{name}-{fault}", "design_id": name,
        "clean_id": f"{name}-none", "suite_sha256": "s", "prompt_sha256": prompt, "fault_sha256": fault,
        "model_sha256": f"{model}{quant}", "model_bytes": 5_000_000, "step_budget": 12, "error_budget": 10,
    }  # fmt: skip
    empty = {"str": "", "int": 0, "bool": False}
    return CellFacts(**{f.name: given.get(f.name, empty.get(str(f.type), "")) for f in fields(CellFacts)})


def episodes_of(
    tasks: int, good: float, certified: np.ndarray | None, rng: np.random.Generator
) -> pd.DataFrame:
    """Episodes of a clean pass (no mask) or of the fault cell of the certified tasks."""
    numbers = np.arange(tasks)
    base = numbers % 2 == 0
    sites = np.where(base, 4, 5)
    if certified is None:
        task, site = numbers, np.full(tasks, -1)
    else:
        kept = numbers[certified]
        task = np.repeat(kept, sites[certified])
        site = np.concatenate([np.arange(n) for n in sites[certified]])
    n = len(task)
    success = rng.random(n) < good
    gave_up = ~success & (rng.random(n) < 0.5)
    errors = rng.poisson(0.4, n)
    fault = certified is not None
    frame = pd.DataFrame(
        {
            "task": [f"task-{one:05d}" for one in task],
            "fault": "et" if fault else "none",
            "site": pd.array(np.where(site < 0, 0, site), dtype="Int32").astype("Int32"),
            "trial": 0,
            "family": np.where(base[task], "base", "shipping"),
            "site_tool": "get_customer",
            "ending": np.where(gave_up, "reported_failure", "submitted"),
            "answer": np.where(gave_up, None, "12.50"),
            "gold": "12.50",
            "turns": 5 + errors,
            "errors": errors,
            "turns_not_strict": 0,
            "turns_cut": 0,
            "control_text": False,
            "tokens_in": 900,
            "tokens_out": 150,
            "min_margin": rng.exponential(1.0, n),
            "delivered": True,
            "reported": False,
            "invented": False,
            "requeried": False,
            "expression": False,
            "strict_throughout": True,
        }
    )
    for channel in CHANNELS:
        frame[f"errors_{channel}"] = errors if channel == "arguments" else 0
    for name in ("fired", "witnessed", "retried", "recovered", "dead_calls"):
        frame[name] = pd.array([1] * n if fault else [None] * n, dtype="Int32")
    if not fault:
        frame["site"] = pd.array([None] * n, dtype="Int32")
    for policy in ("tolerant", "strict"):
        frame[f"{policy}_success"] = success
        frame[f"{policy}_right_answer"] = success
        frame[f"{policy}_reason"] = np.where(success, "right_answer", "gave_up")
        frame[f"{policy}_reported_after"] = False
    return frame


def calls_of(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Calls of the given episodes, one row per turn."""
    turns = frame["turns"].to_numpy()
    row = np.repeat(np.arange(len(frame)), turns)
    turn = np.concatenate([np.arange(n) for n in turns])
    failed = turn < frame["errors"].to_numpy()[row]
    last = turn == turns[row] - 1
    keys = frame.loc[row, ["task", "fault", "site", "trial"]].reset_index(drop=True)
    tool = np.array(TOOLS)[np.minimum(turn, 3)]
    return keys.assign(
        turn=turn,
        parse="strict",
        tool=np.where(last, "submit_answer", tool),
        arguments='{"order_id":"O-1"}',
        ok=~failed,
        channel=np.where(failed, "arguments", None),
        injected=False,
        stop="end_of_generation",
        tokens_in=40,
        tokens_out=30,
        min_margin=rng.exponential(1.0, len(row)),
        min_margin_token=3,
        control_text=False,
    )


def write_logs(folder: Path, tasks: int, names: list[tuple[str, str, str]], seed: int) -> None:
    """Write every cell's episodes and calls."""
    rng = np.random.default_rng(seed)
    for at, (model, quant, prompt) in enumerate(names):
        good = 0.9 - 0.1 * QUANTS.index(quant) - 0.02 * (at % 5)
        clean = episodes_of(tasks, good, None, rng)
        certified = clean["tolerant_success"].to_numpy()
        for fault, frame in (("none", clean), ("et", episodes_of(tasks, good, certified, rng))):
            name = facts_of(model, quant, prompt, fault).cell_id
            frame.to_parquet(folder / f"{name}.episodes.parquet")
            calls_of(frame, rng).to_parquet(folder / f"{name}.calls.parquet")


def report(folder: Path, names: list[tuple[str, str, str]]) -> str:
    """Read the logs, compute and write the report; say what it took."""
    started = time.perf_counter()
    cells = []
    for model, quant, prompt in names:
        facts = [facts_of(model, quant, prompt, fault) for fault in ("none", "et")]
        tables = [pd.read_parquet(folder / f"{one.cell_id}.episodes.parquet") for one in facts]
        clean = StoredCell(facts[0], tables[0], None)
        cells += [clean, StoredCell(facts[1], tables[1], clean)]
    material = Material(calls=lambda name: pd.read_parquet(folder / f"{name}.calls.parquet"))
    read = time.perf_counter()
    built = build_report(cells, material=material)
    computed = time.perf_counter()
    written = write_report(built, folder / "report")
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    busy = time.process_time()
    n = sum(len(cell.episodes) for cell in cells)
    size = written.page.stat().st_size / 1e6
    return (
        f"| {len(names)} | {n:,} | {read - started:.1f} | {computed - read:.1f} | {done - computed:.1f} | "
        f"{done - started:.1f} | {busy:.1f} | {peak:.2f} | {size:.1f} |"
    )


def main() -> None:
    """Write the logs, then measure the report in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--models", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, help="folder of logs that were written before (used by itself)")
    arguments = parser.parse_args()
    names = [
        (f"model{model}", quant, f"P{prompt}")
        for model in range(arguments.models)
        for prompt in range(arguments.prompts)
        for quant in QUANTS
    ]
    if arguments.logs is not None:
        print(report(arguments.logs, names))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), arguments.tasks, names, arguments.seed)
        print(
            "| cells | episodes | read, s | compute, s | write, s | all, s | CPU, s | peak, GB | page, MB |"
        )
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        subprocess.run([sys.executable, *sys.argv, "--logs", folder], check=True)


if __name__ == "__main__":
    main()
