"""What a log can show of failed calls: budgets by every way of counting, and what imported logs hide.

The first way is what the figures show: *allow K* of the agent's own failed calls, as qfr's budget counts. An
imported log has a second side whose failed calls its own budget counted too (tau2-bench's user simulator).
What such a log cannot show has no value, and says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.random import Generator

from qfr.analysis.diagnostics.budget import ALLOW, BudgetCurve, BudgetTable, Counting, Rule, budget_table
from qfr.analysis.diagnostics.channels import Amplification, Behaviour, ChannelRate
from qfr.analysis.diagnostics.length import Length
from qfr.analysis.diagnostics.log import Log
from qfr.analysis.diagnostics.recovery import Recovery
from qfr.analysis.diagnostics.resampled import Sums, missing, ratios
from qfr.analysis.frames import Cell
from qfr.analysis.trials import FOREIGN, common_budget, planned
from qfr.facts import CellFacts
from qfr.foreign.measures import ANY, FORMAT, ROLE_CONFUSION
from qfr.records import Channel, FaultKind, Policy
from qfr.stats.intervals import Options
from qfr.tracking.reading.simulations import COLUMNS

#: Rule of the clean pass of a cell whose fault episodes are recounted by the others.
CLEAN = f"clean pass, {ALLOW.counting}"
_STOP = Rule(Counting.stop_at)
_INJECTED = (Rule(injected=True), Rule(Counting.stop_at, injected=True))
_KEYS = ["task", "trial"]

#: From cell_id to the failed calls of the other side of an imported log: task, trial, user_errors.
OtherErrors = Callable[[str], pd.DataFrame | None]


@dataclass(frozen=True, eq=False)
class Counted:
    """One cell recounted under one rule."""

    rule: str
    # In words.
    table: BudgetTable


@dataclass(frozen=True)
class RuledCurve:
    """S(K) under one rule."""

    rule: str
    curve: BudgetCurve


def shared_budget(cells: Sequence[Cell], others: OtherErrors | None = None) -> int | None:
    """Return the one error budget that imported logs are recounted under together; None for our own cells."""
    logs = [cell for cell in cells if cell.facts.executor == FOREIGN]
    if not logs:
        return None
    most = (max(int(frame["errors"].max()) for _, frame in _sides(cell, others)) for cell in logs)
    return common_budget((planned(cell.facts).max_errors for cell in logs), most)


def counted(
    cell: Cell, policy: Policy, others: OtherErrors | None = None, budget: int | None = None
) -> tuple[Counted, ...]:
    """Recount a cell under every rule that makes a difference for its kind; the figures' rule comes first.

    Parameters
    ----------
    cell : Cell
        A fault cell with its clean pass, a clean pass alone, or an imported log.
    others : callable, optional
        Failed calls of the other side of imported logs.
    budget : int, optional
        The largest K of an imported log; None takes its own.
    """
    if cell.facts.executor == FOREIGN:
        return _foreign(cell, policy, others, shared_budget([cell], others) if budget is None else budget)
    rules = (ALLOW, _STOP)
    if cell.facts.fault != FaultKind.none:
        found = tuple(Counted(rule.text, recount(cell, policy, rule)) for rule in (*rules, *_INJECTED))
        if cell.clean is None:
            return found
        # Without a fault (Jang 2026): what a tight budget does to the clean pass.
        return (*found, Counted(CLEAN, recount(cell.clean, policy)))
    return tuple(Counted(str(rule.counting), recount(cell, policy, rule)) for rule in rules)


def recount(cell: Cell, policy: Policy, rule: Rule = ALLOW) -> BudgetTable:
    """Recount a cell of our own, from its error budget down."""
    clean, episodes, budget = cell.clean, cell.episodes, cell.facts.error_budget
    name = cell.facts.quant
    if clean is None:
        return budget_table(name, episodes, None, policy=policy, budget=budget, rule=rule)
    return budget_table(name, clean.episodes, episodes, policy=policy, budget=budget, rule=rule)


def _foreign(
    cell: Cell, policy: Policy, others: OtherErrors | None, budget: int | None
) -> tuple[Counted, ...]:
    return tuple(
        Counted(
            f"{rule.counting}, {whose}",
            budget_table(cell.facts.quant, frame, None, policy=policy, budget=budget or 0, rule=rule),
        )
        for whose, frame in _sides(cell, others)
        for rule in (ALLOW, _STOP)
    )


def _sides(cell: Cell, others: OtherErrors | None) -> list[tuple[str, pd.DataFrame]]:
    """Episodes by whose failed calls they count."""
    sides = [("the agent's failed calls", cell.episodes)]
    more = None if others is None else others(cell.facts.cell_id)
    if more is not None:
        both = cell.episodes.merge(more, on=_KEYS, how="left", validate="one_to_one")
        both["errors"] = both["errors"].astype("int64") + both["user_errors"].fillna(0).astype("int64")
        sides.append(("failed calls of both sides", both))
    return sides


#: Title of a report of imported logs alone.
TITLE = "Imported logs: success, and how calls fail"
_NO_FORMAT = "not observable: the log lists no call that could not be read"
_NO_REPORT = "not observable: these programs have no way to report a failure"
#: Engine of a cell that a file of the neutral format holds.
EXTERNAL = "external"
_HIDDEN = "not observable"
_NO_TOKENS = "not observable: the log does not count these tokens"


def imported(facts: CellFacts) -> bool:
    """Whether the cell is a log of another program without faults."""
    return facts.executor == FOREIGN


def neutral(facts: CellFacts) -> bool:
    """Whether the cell comes from a file of the neutral format, which holds no tokens of a call."""
    return facts.engine == EXTERNAL


def only_imported(facts: Iterable[CellFacts]) -> bool:
    """Whether a report is of imported logs alone: nothing was injected, and both policies say the same."""
    given = tuple(facts)
    return bool(given) and all(one.executor == FOREIGN for one in given)


def blind(facts: CellFacts) -> str:
    """Why calls and errors cannot be seen in a cell; empty where they can."""
    return planned(facts).blind if imported(facts) else str(external(facts.config).get("blind", ""))


@lru_cache(maxsize=1024)
def external(config: str) -> Mapping[str, object]:
    """What a cell of the neutral format says of its file; nothing of any other cell."""
    about = json.loads(config).get("external") if config.startswith('{"external"') else None
    return about if isinstance(about, dict) else {}


def hidden(facts: CellFacts, event: str) -> str:
    """Why a cell cannot show an event; empty where it can."""
    unseen = planned(facts).unseen if imported(facts) else external(facts.config).get("unseen")
    if isinstance(unseen, list | tuple) and event in unseen:
        return _NO_FORMAT if event == Channel.form else _NO_REPORT
    limit = _limit(facts, event)
    if limit.startswith(_HIDDEN):
        return limit
    # A message that holds a call as text is seen where no call is.
    return "" if event == FORMAT and limit else blind(facts)


def _limit(facts: CellFacts, event: str) -> str:
    """What the log itself says of a channel: what limits its number, or why there is none."""
    if not imported(facts):
        return ""
    return planned(facts).limits.get(ANY if event == Behaviour.any_error else event, "")


def seen_rates(
    rates: Iterable[ChannelRate], log: Log, facts: CellFacts, rng: Generator, options: Options
) -> tuple[ChannelRate, ...]:
    """Rates with what limits them, those of events that the log cannot show without a value.

    The records of an imported log hold neither whose tool was called nor the messages with a call as text;
    both are counted from the log, role confusion (a part of the channel `tool_name`) beside the channels.
    """
    found = list(rates)
    if imported(facts):
        found.append(_counted(ROLE_CONFUSION, log, rng, options))
        if _limit(facts, FORMAT) and not hidden(facts, FORMAT):
            found = [_counted(FORMAT, log, rng, options) if r.event == FORMAT else r for r in found]
    return tuple(_limited(rate, facts, options) for rate in found)


def _limited(rate: ChannelRate, facts: CellFacts, options: Options) -> ChannelRate:
    reason = hidden(facts, rate.event)
    if not reason:
        return replace(rate, note=_limit(facts, rate.event))
    none = missing(0, options, reason)
    return replace(rate, per_call=none, per_episode=none)


def _counted(event: str, log: Log, rng: Generator, options: Options) -> ChannelRate:
    """The rate of an event that the log counts per simulation; a call left in the text has none per call."""
    each = log.episodes[{FORMAT: "left_in_text"}.get(event, event)]
    counts = each.fillna(0).to_numpy(dtype=np.float64)
    columns = counts, counts > 0, log.episodes["turns"].to_numpy(dtype=np.float64), np.ones(len(counts))
    events, having, calls, episodes = (log.over_episodes(one) for one in columns)
    tops, bottoms = np.stack([events, having], axis=1), np.stack([calls, episodes], axis=1)
    per_call, per_episode = ratios(Sums(tops, bottoms), rng=rng, options=options)
    if event == FORMAT:
        per_call = missing(0, options, "a message is no call")
    if each.isna().any():
        reason = f"{_HIDDEN}: imported by an earlier version; import the log again"
        per_call = per_episode = missing(0, options, reason)
    count, of, episodes_with, n = (int(one.sum()) for one in (events, calls, having, episodes))
    return ChannelRate(event, count, of, episodes_with, n, per_call, per_episode)


def seen_amplifications(
    found: Iterable[Amplification], first: CellFacts, second: CellFacts
) -> tuple[Amplification, ...]:
    """Amplifications of the events that both logs can show."""
    return tuple(one for one in found if not hidden(first, one.event) and not hidden(second, one.event))


def seen_curves(curves: Iterable[RuledCurve], facts: CellFacts, options: Options) -> tuple[RuledCurve, ...]:
    """S(K), without a value where the log cannot show failed calls."""
    reason = blind(facts)
    if not reason:
        return tuple(curves)
    none = missing(0, options, reason)
    return tuple(
        replace(
            one, curve=replace(one.curve, points=tuple(replace(p, success=none) for p in one.curve.points))
        )
        for one in curves
    )


def seen_recovery(found: Iterable[Recovery], facts: CellFacts, options: Options) -> tuple[Recovery, ...]:
    """What follows an error; the log does not count the tokens of a call."""
    if not (imported(facts) or neutral(facts)):
        return tuple(found)
    if blind(facts):
        return ()
    return tuple(replace(one, tokens_out=missing(0, options, _NO_TOKENS)) for one in found)


def seen_lengths(
    found: Iterable[Length], facts: CellFacts, options: Options, *, tokens: bool
) -> tuple[Length, ...]:
    """Lengths, without a value where the log does not count; `tokens`: it counts those that are written."""
    if not (imported(facts) or neutral(facts)):
        return tuple(found)
    reasons = {
        "turns": blind(facts),
        "tokens_in": _NO_TOKENS,
        "tokens_out": "" if tokens and imported(facts) else _NO_TOKENS,
    }
    return tuple(
        replace(one, mean=missing(0, options, reason), quantiles=())
        if (reason := reasons[one.measure])
        else one
        for one in found
    )


def with_details(episodes: pd.DataFrame, details: pd.DataFrame | None) -> tuple[pd.DataFrame, bool]:
    """Episodes with what the log counts per simulation, and whether it counts the tokens of every one."""
    keys = ["task", "trial"]
    known = pd.DataFrame(columns=list(COLUMNS)) if details is None else details
    joined = episodes[keys].merge(known, on=keys, how="left", validate="one_to_one")
    more = {name: joined[name].to_numpy() for name in (ROLE_CONFUSION, "left_in_text")}
    tokens = joined["completion_tokens"]
    if tokens.isna().any():
        return episodes.assign(**more), False
    return episodes.assign(**more, tokens_out=tokens.to_numpy(dtype="int64")), True
