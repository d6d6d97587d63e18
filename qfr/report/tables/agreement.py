"""The page's tables on how far one order of presets holds, and what moves rates most."""

from __future__ import annotations

from qfr.analysis.contrast.agreement import SPREADS, Agreement
from qfr.analysis.results import Result
from qfr.analysis.rows import agreement_rows, spread_row
from qfr.report.content.build import Report
from qfr.report.tables.views import Entry, Table


def agreement_tables(report: Report) -> tuple[Table, ...]:
    """Agreement of orders, and spread by axis; tables without rows are left out."""
    found = (_agreements(report.agreements), _spreads(report))
    return tuple(one for one in found if one.rows)


def _agreements(found: tuple[Agreement, ...]) -> Table:
    changed = sum(not set(one.tops[0].split("=")) & set(one.tops[1].split("=")) for one in found)
    return Table(
        "The order of the presets by their rate in two places that differ in one thing alone: Kendall tau-b "
        "with a 95 % task-bootstrap interval, and Spearman's rho. Not defined where all presets tie. The top "
        f"preset changes in {changed} of {len(found)} comparisons.",
        ("Across", "First", "Second", "Kendall tau", "Spearman", "Top preset"),
        tuple(
            (
                Entry(one.across, one.key.context),
                Entry(one.first),
                Entry(one.second),
                *_orders(one),
                Entry(one.tops[0] if one.tops[0] == one.tops[1] else f"{one.tops[0]} / {one.tops[1]}"),
            )
            for one in found
        ),
        headers=3,
        title="Does one order of the presets hold?",
    )


def _orders(one: Agreement) -> tuple[Entry, Entry]:
    tau, rho = agreement_rows(one)
    return _tau(one, tau), Entry("–" if rho.value is None else f"{rho.value:.2f}", id=rho.id)


def _tau(one: Agreement, row: Result) -> Entry:
    if one.tau is None:
        return Entry("–", row.reason or "", True, id=row.id)
    ends = "" if one.tau_low is None or one.tau_high is None else f"[{one.tau_low:.2f}, {one.tau_high:.2f}]"
    small = f"{ends} {len(one.presets)} presets".strip()
    return Entry(f"{one.tau:.2f}", small, one.tau_low is None, id=row.id)


def _spreads(report: Report) -> Table:
    found = report.spreads
    places: dict[tuple[str, str], dict[str, Entry]] = {(one.axis, one.target): {} for one in found}
    for one in found:
        small = f"largest {100 * one.largest:.1f}, {one.places} places"
        row = spread_row(one, SPREADS[one.axis])
        places[one.axis, one.target][one.policy] = Entry(f"{100 * one.mean:.1f}", small, id=row.id)
    return Table(
        "Largest rate minus smallest along one axis, all else equal, in points: mean over places where it "
        "can be seen. Where a spread over prompts shrinks under the other policy, the scorer made that part.",
        ("Along", "Target", "tolerant", "strict"),
        tuple(
            (
                Entry(SPREADS[axis]),
                Entry(target),
                *(by_policy.get(name, Entry("–")) for name in ("tolerant", "strict")),
            )
            for (axis, target), by_policy in places.items()
        ),
        headers=2,
        title="What moves rates: presets, prompts, rewrites, executors",
    )
