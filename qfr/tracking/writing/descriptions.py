"""What a run is, in Markdown, as MLflow shows it above the run's figures."""

from __future__ import annotations

from collections.abc import Iterable

from qfr.facts import CellFacts
from qfr.records import FaultKind
from qfr.tracking.store import Store

NOTE_TAG = "mlflow.note.content"


def describe_cell(store: Store, facts: CellFacts, sweep_run_id: str | None) -> str:
    """A cell's run: which episodes it holds, and where the report stands."""
    clean = facts.fault == FaultKind.none
    what = "The clean pass (no fault is injected)" if clean else f"The episodes with fault `{facts.fault}`"
    lines = [
        f"{what} of **{facts.model}** at **{facts.quant}**, prompt {facts.prompt}, suite {facts.suite}. "
        "Every episode stands in `episodes.jsonl.gz`; `tolerant.*` and `strict.*` are its two scores."
    ]
    if sweep_run_id is not None:
        lines.append(f"The report of its grid: [the sweep's run]({_run(store, sweep_run_id)}).")
    return "\n\n".join(lines)


def describe_sweep(cells: int, axes: Iterable[tuple[str, Iterable[str]]]) -> str:
    """A sweep's run: what its grid asks.

    Parameters
    ----------
    cells : int
    axes : iterable of (str, iterable of str)
        Name of an axis and its values in the grid.
    """
    lines = [
        f"A grid of {cells} cells: how often does the agent still solve a task after the injected fault?"
    ]
    lines += [f"- {name}: {', '.join(dict.fromkeys(values))}" for name, values in axes]
    return f"{lines[0]}\n\n" + "\n".join(lines[1:])


def with_report(store: Store, note: str, run_id: str, sweep: str) -> str:
    """The description with a link to the report, which stands on a sweep's run (this one or an earlier)."""
    address = f"{_run(store, run_id)}/artifacts/report/report.html"
    return f"{note.partition(_MARK)[0]}{_MARK}[Report of {sweep}]({address})"


_MARK = "\n\nAnswer: "


def _run(store: Store, run_id: str) -> str:
    # An address within MLflow's pages, whatever server shows them.
    return f"#/experiments/{store.experiment_id}/runs/{run_id}"
