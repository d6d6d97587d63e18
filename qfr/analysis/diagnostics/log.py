"""Episodes and calls of one agent (model, preset, prompt), joined and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from qfr.analysis.frames import score_column
from qfr.errors import TableError
from qfr.records import Ending, Policy
from qfr.stats.lattice import BoolArray, FloatArray, IntArray

#: What names an episode within the episodes of one agent.
KEYS = ("task", "fault", "site", "trial")


def require(frame: pd.DataFrame, names: Sequence[str], where: str) -> None:
    """Raise `TableError` unless the table has all the named columns."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise TableError(
            f"no column {', '.join(missing)}",
            where=where,
            hint="hand in the tables as the tracking store returns them, scores included",
        )


def integers(column: pd.Series[int], missing: int = -1) -> IntArray:
    """Return an integer column that may hold nulls, with `missing` in their place."""
    filled: IntArray = np.asarray(column.astype("Int64").fillna(missing), dtype=np.int64)
    return filled


def flags(column: pd.Series[bool]) -> BoolArray:
    """Return a column of booleans."""
    return column.to_numpy(dtype=np.bool_)


def codes(*frames: pd.DataFrame) -> tuple[IntArray, ...]:
    """Return one integer per row of each table, equal exactly where `KEYS` are equal, across tables too."""
    sizes = [len(frame) for frame in frames]
    combined = np.zeros(sum(sizes), dtype=np.int64)
    for key in KEYS:
        if key in ("site", "trial"):
            values = np.concatenate([integers(frame[key]) for frame in frames])
        else:
            values = np.concatenate([frame[key].to_numpy(dtype=object) for frame in frames])
        code, distinct = pd.factorize(values)
        combined = combined * (len(distinct) + 1) + code
    return tuple(np.split(combined, np.cumsum(sizes)[:-1]))


def find(wanted: IntArray, among: IntArray) -> IntArray:
    """Return the place of each wanted code in `among` (distinct codes), -1 where it is missing."""
    if not among.size:
        return np.full(wanted.shape, -1, dtype=np.int64)
    order = np.argsort(among, kind="stable")
    at = np.minimum(np.searchsorted(among[order], wanted), among.size - 1)
    found = order[at]
    return np.where(among[found] == wanted, found, -1)


def doubled(code: IntArray) -> int | None:
    """Return the row of the first code that an earlier row has already, None when all are distinct."""
    again = pd.Series(code).duplicated().to_numpy(dtype=np.bool_)
    return int(np.argmax(again)) if again.any() else None


_EPISODES = (*KEYS, "ending", "turns", "errors")
_CALLS = (*KEYS, "turn", "tool", "arguments", "ok", "channel", "injected")


@dataclass(frozen=True, eq=False)
class Log:
    """Episodes and calls of one agent: a clean pass, fault cells, or both (`pool`).

    Build it with `make_log`. A *call* is a model turn: each turn asks for exactly one, well or badly; the
    terminal calls (submit, report) are calls too.
    """

    name: str
    # What the agent is called in results, such as its preset.
    episodes: pd.DataFrame
    # One row per episode, as given.
    calls: pd.DataFrame
    # One row per call, by episode and turn.
    tasks: tuple[str, ...]
    # Distinct tasks in the order of their first episode.
    task_of: IntArray
    # Index into tasks, shape (n_episodes,).
    episode_of: IntArray
    # Row of the episode, shape (n_calls,), ascending.

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return int(self.task_of.size)

    @property
    def n_calls(self) -> int:
        """Number of calls."""
        return int(self.episode_of.size)

    @cached_property
    def ok(self) -> BoolArray:
        """The call was answered with a result, shape (n_calls,)."""
        return flags(self.calls["ok"])

    @cached_property
    def injected(self) -> BoolArray:
        """The answer came from the fault, shape (n_calls,)."""
        return flags(self.calls["injected"])

    def in_channel(self, channel: str) -> BoolArray:
        """The call failed in this channel, shape (n_calls,)."""
        return np.asarray(self.calls["channel"].isin([channel]), dtype=np.bool_)

    @cached_property
    def erred(self) -> BoolArray:
        """The call failed by the agent's own error, shape (n_calls,)."""
        return np.asarray(self.calls["channel"].notna(), dtype=np.bool_)

    @cached_property
    def last(self) -> BoolArray:
        """The last call of its episode, shape (n_calls,)."""
        following = np.append(self.episode_of[1:], -1)
        ends: BoolArray = self.episode_of != following
        return ends

    @cached_property
    def submits(self) -> BoolArray:
        """The call submitted the answer, shape (n_calls,)."""
        return self.last & self._ended_as(Ending.submitted)

    @cached_property
    def reports(self) -> BoolArray:
        """The call reported failure, shape (n_calls,)."""
        return self.last & self._ended_as(Ending.reported_failure)

    def _ended_as(self, ending: Ending) -> BoolArray:
        mask: BoolArray = (self.episodes["ending"] == str(ending)).to_numpy(dtype=np.bool_)
        chosen: BoolArray = mask[self.episode_of]
        return chosen

    def score(self, policy: Policy, field: str = "success") -> BoolArray:
        """Return a boolean score field under a policy, shape (n_episodes,).

        Raises
        ------
        TableError
            If the table holds no scores.
        """
        column = score_column(policy, field)
        require(self.episodes, (column,), f"episodes of {self.name}")
        return flags(self.episodes[column])

    def over_calls(self, values: BoolArray | IntArray | FloatArray) -> FloatArray:
        """Sum a value per call within each episode, shape (n_episodes,)."""
        sums = np.bincount(self.episode_of, weights=values, minlength=self.n_episodes)
        return sums.astype(np.float64, copy=False)

    def over_episodes(self, values: BoolArray | IntArray | FloatArray) -> FloatArray:
        """Sum a value per episode within each task, shape (n_tasks,)."""
        sums = np.bincount(self.task_of, weights=values, minlength=len(self.tasks))
        return sums.astype(np.float64, copy=False)

    def numbers(self, column: str) -> FloatArray:
        """Return a numeric column of the calls, nan where it is null, shape (n_calls,)."""
        require(self.calls, (column,), f"calls of {self.name}")
        return self.calls[column].to_numpy(dtype=np.float64, na_value=np.nan)


def make_log(name: str, episodes: pd.DataFrame, calls: pd.DataFrame) -> Log:
    """Join the two tables of one agent.

    Parameters
    ----------
    episodes, calls : DataFrame
        One row per episode and one per call, in any order, with the columns of the derived tables.

    Raises
    ------
    TableError
        A column is missing, an episode is listed twice, a call belongs to no episode, or an episode has
        another number of calls than it has turns.
    """
    require(episodes, _EPISODES, f"episodes of {name}")
    require(calls, _CALLS, f"calls of {name}")
    of_episodes, of_calls = codes(episodes, calls)
    again = doubled(of_episodes)
    if again is not None:
        raise TableError(f"episode {_key(episodes, again)} is listed twice", where=f"episodes of {name}")
    at = find(of_calls, of_episodes)
    if (at < 0).any():
        stray = _key(calls, int(np.argmin(at)))
        raise TableError(f"calls of episode {stray}, which is not listed", where=f"calls of {name}")
    turns = episodes["turns"].to_numpy(dtype=np.int64)
    counted = np.bincount(at, minlength=len(episodes))
    if (counted != turns).any():
        row = int(np.argmax(counted != turns))
        raise TableError(
            f"episode {_key(episodes, row)} has {turns[row]} turns but {counted[row]} calls",
            where=f"calls of {name}",
            hint="the two tables follow from different logs",
        )
    order = np.lexsort((calls["turn"].to_numpy(dtype=np.int64), at))
    task_of, names = pd.factorize(episodes["task"].to_numpy(dtype=object))
    return Log(
        name=name,
        episodes=episodes.reset_index(drop=True),
        calls=calls.iloc[order].reset_index(drop=True),
        tasks=tuple(str(task) for task in names),
        task_of=task_of.astype(np.int64),
        episode_of=at[order],
    )


def pool(name: str, logs: Sequence[Log]) -> Log:
    """Return the episodes of several cells of one agent as one log, such as a clean pass and its fault cells.

    Raises
    ------
    TableError
        If no log is given, or two of them list the same episode.
    """
    if not logs:
        raise TableError("no log to pool", where=name)
    episodes = pd.concat([log.episodes for log in logs], ignore_index=True)
    calls = pd.concat([log.calls for log in logs], ignore_index=True)
    return make_log(name, episodes, calls)


def shared(first: Log, second: Log) -> tuple[Log, Log]:
    """Return both logs restricted to the episodes (task, fault, site, trial) that both list, in one order.

    Fault episodes run on certified tasks only, so counts of two presets over all of their episodes do not
    have the same opportunities; over the shared ones they do.
    """
    one, other = codes(first.episodes, second.episodes)
    at = find(one, other)
    rows = np.flatnonzero(at >= 0)
    return _taken(first, rows), _taken(second, at[rows])


def _taken(log: Log, rows: IntArray) -> Log:
    kept = np.zeros(log.n_episodes, dtype=np.bool_)
    kept[rows] = True
    return make_log(log.name, log.episodes.iloc[rows], log.calls[kept[log.episode_of]])


def _key(frame: pd.DataFrame, row: int) -> str:
    return " ".join(f"{key}={frame[key].iloc[row]}" for key in KEYS)
