"""Success under an error budget by every way of counting failed calls.

The first way is what the figures show: *allow K* of the agent's own failed calls, as qfr's budget counts. An
imported log has a second side whose failed calls its own budget counted too (tau2-bench's user simulator).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from qfr.analysis.diagnostics.budget import ALLOW, BudgetCurve, BudgetTable, Counting, Rule, budget_table
from qfr.analysis.frames import Cell
from qfr.analysis.trials import FOREIGN, common_budget, planned
from qfr.records import FaultKind, Policy

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
    policy : Policy
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
