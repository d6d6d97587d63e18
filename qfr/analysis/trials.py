"""Logs of other programs as task tables: one rate per task, the mean over its trials.

Such a log (see `qfr.foreign`) has no faults and no clean pass before them; it runs every task several
times. Trials nest in tasks, so a task's value is the mean success of its scored trials, and tasks are
resampled. In a `TaskTable` of such a log

- ``scheduled`` counts the planned trials of a task, ``delivered`` those that the log scores, ``successes``
  the successful ones. A simulation that the log excludes or lacks is what an undelivered fault is elsewhere:
  it is in no rate, and bounds count it as a failure and as a success
- ``certified`` marks the planned tasks: nothing screens them
- the only target is *clean*, success without a fault, over the tasks with a scored trial on both sides

Both scoring policies say the same: success is the log's own reward.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pandas as pd

from qfr.analysis.targets import CellKey, TaskTable
from qfr.canonical import canonical
from qfr.errors import LogError
from qfr.facts import CellFacts
from qfr.foreign import ForeignRun
from qfr.foreign.jsonl import UNSEEN
from qfr.foreign.measures import Convention, channel_rates, task_trials
from qfr.scope import UNKNOWN, Scope, scope_of
from qfr.stats.lattice import BoolArray, IntArray
from qfr.tracking.reading.tables import readable

#: Executor of an imported cell: another program ran it.
FOREIGN = "foreign"

_KEY = "foreign"
_ABOUT = (
    "kind", "release", "release_reason", "agent", "user_model", "domain", "git_commit", "timestamp", "trials",
    "max_steps", "max_errors", "seed", "source", "sha256",
)  # fmt: skip


@dataclass(frozen=True)
class Planned:
    """What an imported log meant to hold."""

    tasks: tuple[str, ...]
    # In the order of the log.
    excluded: tuple[str, ...]
    # Task of every simulation that is in no rate.
    max_errors: int | None
    # The log's error budget (both sides together, cumulative); None without one.
    blind: str
    # Why calls and errors cannot be seen in the log; empty where they can.
    source: str
    # File or folder name.
    made: Mapping[str, str]
    # What the log says of its making, by field of `ForeignInfo`; empty where it is silent.
    unseen: tuple[str, ...]
    # What the log cannot show, of `format` and `premature_give_up`.
    limits: Mapping[str, str]
    # By channel: why it has no number, or what limits it.
    warnings: tuple[str, ...]
    # What a reader of the results must know.
    trials: int
    # Planned per task.
    reasons: tuple[tuple[str, int], ...]
    # Why simulations are in no rate, and how many for each reason.


def describe(run: ForeignRun) -> str:
    """Return the configuration of an imported cell as canonical JSON, to be stored with its run."""
    info = run.info
    about: dict[str, object] = {name: _plain(getattr(info, name)) for name in _ABOUT}
    about |= {
        "user_tools": sorted(map(readable, info.user_tools)),
        "warnings": list(map(readable, run.warnings)),
        "blind": run.blind,
        "unseen": list(run.unseen),
        "limits": {rate.channel: rate.note for rate in channel_rates(run) if rate.note},
        "tasks": list(map(readable, run.tasks)),
        "excluded": [
            [readable(gone.task), gone.trial, readable(gone.reason), readable(gone.simulation)]
            for gone in run.excluded
        ],
    }
    return canonical({_KEY: about})


def planned(facts: CellFacts) -> Planned:
    """Read back what `describe` stored.

    Raises
    ------
    LogError
        The cell was not imported, or its configuration was changed.
    """
    try:
        about = json.loads(facts.config)[_KEY]
        tasks = tuple(str(task) for task in about["tasks"])
        excluded = tuple(str(gone[0]) for gone in about["excluded"])
        budget = about["max_errors"]
        reasons = Counter(str(gone[2]) for gone in about["excluded"])
        found = Planned(
            tasks=tasks,
            excluded=excluded,
            max_errors=None if budget is None else int(budget),
            # A log that an earlier version imported does not say these.
            blind=str(about.get("blind", "")),
            source=str(about.get("source", "")),
            made={name: str(about[name]) for name in _ABOUT if about.get(name) is not None},
            unseen=tuple(map(str, about.get("unseen", UNSEEN))),
            limits={str(channel): str(note) for channel, note in about.get("limits", {}).items()},
            warnings=tuple(map(str, about.get("warnings", ()))),
            trials=int(about.get("trials", 0)),
            reasons=tuple(sorted(reasons.items(), key=lambda one: (-one[1], one[0]))),
        )
    except (ValueError, TypeError, LookupError) as error:
        raise LogError(
            f"the run does not say what its log planned ({type(error).__name__})",
            where=facts.name,
            hint="was it edited by hand? Delete it and import the log again",
        ) from None
    if set(found.excluded) - set(tasks) or len(set(tasks)) < len(tasks):
        raise LogError("its planned tasks and its excluded simulations do not agree", where=facts.name)
    return found


def common_budget(stated: Iterable[int | None], counted: Iterable[int]) -> int:
    """Return the largest error budget that all of some logs can be recounted under.

    A log says nothing of a budget above its own. Where none has one it is the most failed calls of any
    simulation: above that every curve is flat.

    Parameters
    ----------
    stated : iterable of int or None
        Budget of each log.
    counted : iterable of int
        Most failed calls of a simulation of each log, as its budget counts them.
    """
    own = [budget for budget in stated if budget is not None]
    return min(own) if own else max(counted, default=0)


def trial_table(
    facts: CellFacts,
    key: CellKey,
    policy: str,
    episodes: pd.DataFrame,
    success: BoolArray,
) -> TaskTable:
    """Build the task table of one imported cell.

    Parameters
    ----------
    episodes : DataFrame
        One row per scored simulation, any number per task.

    Raises
    ------
    LogError
        An episode's task is not among the planned ones.
    """
    plan = planned(facts)
    tasks = pd.Index(plan.tasks)
    at = tasks.get_indexer(pd.Index(episodes["task"]))
    if (at < 0).any():
        stray = episodes["task"].iloc[int(np.argmin(at))]
        raise LogError(f"task {stray} has episodes but is not among the planned tasks", where=facts.name)
    n = len(tasks)
    scored = np.bincount(at, minlength=n).astype(np.int64)
    gone = np.bincount(tasks.get_indexer(pd.Index(plan.excluded)), minlength=n).astype(np.int64)
    wins = np.bincount(at[success], minlength=n).astype(np.int64)
    counts = (wins, scored, scored + gone)
    return replace(_table(key, policy, scope_of(facts), plan.tasks, counts), cells=(facts.cell_id,))


def table_of_run(run: ForeignRun, key: CellKey, policy: str) -> TaskTable:
    """Build the same table from a log that was just read."""
    scored = task_trials(run, Convention.removed)
    everything = task_trials(run, Convention.failed)
    counts = (
        np.array([each.successes for each in scored], dtype=np.int64),
        np.array([each.trials for each in scored], dtype=np.int64),
        np.array([each.trials for each in everything], dtype=np.int64),
    )
    return _table(key, policy, UNKNOWN, tuple(map(readable, run.tasks)), counts)


def aligned(tables: Iterable[TaskTable]) -> tuple[TaskTable, ...]:
    """Let imported tables of one suite list the same tasks in the same order, so that they can be paired.

    A task that a log did not plan has no trial on its side and enters nowhere. Other tables stay as they are.
    """
    given = tuple(tables)
    known: dict[tuple[str, str], set[str]] = {}
    for table in given:
        if table.key.executor == FOREIGN:
            known.setdefault(_suite(table), set()).update(table.tasks)
    return tuple(
        _spread(table, tuple(sorted(known[_suite(table)]))) if table.key.executor == FOREIGN else table
        for table in given
    )


def listed_differences(runs: Sequence[ForeignRun]) -> tuple[str, ...]:
    """Name what differs between logs besides the model: each is another reason for a difference."""
    told = []
    for name, words in (
        ("domain", "domain"),
        ("user_model", "user simulator"),
        ("agent", "agent implementation"),
        ("max_steps", "step budget"),
        ("max_errors", "error budget"),
        ("trials", "planned trials per task"),
        ("release", "release of the writing program"),
        ("git_commit", "commit of the writing program"),
    ):
        values = [_word(getattr(run.info, name)) for run in runs]
        if len(set(values)) > 1:
            told.append(f"{words}: {' / '.join(values)}")
    shared = set.intersection(*(set(run.tasks) for run in runs))
    alone = [len(set(run.tasks) - shared) for run in runs]
    if any(alone):
        counts = " / ".join(map(str, alone))
        told.append(f"planned tasks: {len(shared)} shared, {counts} on one side only (not paired)")
    return tuple(told)


def _table(
    key: CellKey,
    policy: str,
    facts: Scope,
    tasks: tuple[str, ...],
    counts: tuple[IntArray, IntArray, IntArray],
) -> TaskTable:
    wins, scored, scheduled = counts
    return TaskTable(
        key=key,
        policy=policy,
        tasks=tasks,
        # A log is of one domain: there are no strata.
        families=("",) * len(tasks),
        certified=scheduled > 0,
        successes=wins,
        delivered=scored,
        scheduled=scheduled,
        facts=facts,
    )


def _suite(table: TaskTable) -> tuple[str, str]:
    return table.key.suite, table.scope.get("suite.sha256", "")


def _spread(table: TaskTable, tasks: tuple[str, ...]) -> TaskTable:
    place = {task: at for at, task in enumerate(tasks)}
    rows = np.array([place[task] for task in table.tasks], dtype=np.int64)

    def spread(values: IntArray) -> IntArray:
        wide = np.zeros(len(tasks), dtype=np.int64)
        wide[rows] = values
        return wide

    counts = spread(table.successes), spread(table.delivered), spread(table.scheduled)
    return replace(_table(table.key, table.policy, table.facts, tasks, counts), cells=table.cells)


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return str(value.value)
    return readable(value) if isinstance(value, str) else value


def _word(value: object) -> str:
    return "none" if value in (None, "") else str(_plain(value))[:40]
