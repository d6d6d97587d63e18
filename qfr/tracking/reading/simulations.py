"""What an imported log's run holds besides the records: the other side's failed calls."""

from __future__ import annotations

import json

import pandas as pd

from qfr.errors import LogError
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.reading.cells import LoggedCell
from qfr.tracking.store import Store

#: Below the artifacts of an imported log's run: one line of JSON per scored simulation.
SIMULATIONS_FILE = "foreign/simulations.jsonl"
COLUMNS = ("task", "trial", "user_errors", "completion_tokens", "role_confusion", "left_in_text")


def read_other_errors(store: Store, cell: LoggedCell) -> pd.DataFrame:
    """What the records lack, per simulation: task, trial, user_errors, completion_tokens (or null),
    role_confusion (the agent's calls of the user's tools), left_in_text (messages; null in an older import).

    Raises
    ------
    TrackingError
        The file is not among the run's artifacts.
    LogError
        A line of it cannot be read.
    """
    data = read_artifact(store, cell.run_id, cell.artifact_uri, SIMULATIONS_FILE)
    rows: list[tuple[str, int, int, int | None, int, int | None]] = []
    for at, line in enumerate(data.splitlines(), 1):
        try:
            raw = json.loads(line)
            tokens, left = raw.get("completion_tokens"), raw.get("left_in_text")
            confused = sum(bool(call["role_confusion"]) for call in raw["calls"])
            rows.append(
                (
                    str(raw["task"]), int(raw["trial"]), int(raw["user_errors"]),
                    None if tokens is None else int(tokens), confused, None if left is None else int(left),
                )
            )  # fmt: skip
        except (ValueError, TypeError, LookupError) as error:
            raise LogError(
                f"line {at} cannot be read ({type(error).__name__})",
                where=f"{SIMULATIONS_FILE} of run {cell.run_id}",
                hint="was it edited by hand? Delete the run and import the log again",
            ) from None
    return pd.DataFrame(rows, columns=list(COLUMNS))
