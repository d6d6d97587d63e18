"""Tables of contrasts beyond pairs of cells: ladder, interactions, groups, several tests at once."""

from __future__ import annotations

from collections.abc import Iterable

from qfr.analysis.family import Family, Together
from qfr.analysis.interactions import Interaction
from qfr.analysis.ladder import KINDS, Ladder
from qfr.analysis.named_groups import Grouped
from qfr.analysis.results import Contrast
from qfr.analysis.targets import Target
from qfr.faults import FAULTS, USUAL
from qfr.report.layout import TITLES, interval, p_value, signed
from qfr.report.views import Entry, Table
from qfr.stats.intervals import Estimate


def ladder_table(ladder: Ladder) -> Table:
    """Clean pass, each kind of fault, and invented answers (Hu 2026, table 3)."""
    rows = []
    kinds = [
        kind for kind in KINDS if any(step.fault == kind for rung in ladder.rungs for step in rung.steps)
    ]
    for rung in ladder.rungs:
        steps = {step.fault: step for step in rung.steps}
        cells = []
        for kind in kinds:
            step = steps.get(kind)
            if step is None:
                cells.append(Entry("not run", "", True))
                continue
            rate = step.rate
            ends = (
                ""
                if rate.low is None or rate.high is None
                else f"{100 * rate.low:.0f} to {100 * rate.high:.0f} %"
            )
            share = "" if rate.value is None else f"{100 * rate.value:.0f} %, "
            cells.append(Entry(f"{step.successes}/{step.episodes}", f"{share}{ends}", rung.few))
        invented = "–" if rung.invented is None else str(rung.invented)
        rows.append(
            (
                Entry(rung.quant),
                Entry(f"{rung.certified}/{rung.tasks}", "few" if rung.few else "", rung.few),
                *cells,
                Entry(invented),
            )
        )
    return Table(
        "Each preset on its own certified tasks: certified tasks of all, successful of delivered fault "
        "episodes with "
        "the Wilson 95 % interval, and answers invented although the dead tool made them unknowable.",
        ("Preset", "Clean", *(f"{FAULTS[kind].title} ({kind})" for kind in kinds), "Invented"),
        tuple(rows),
    )


def interaction_table(found: Iterable[Interaction]) -> Table:
    """Differences of differences."""
    rows = [
        (
            Entry(f"{one.first} − {one.second}"),
            Entry(f"{one.a} − {one.b}"),
            Entry(TITLES[Target(one.target)].lower()),
            _points(one.found.difference),
            Entry(str(len(one.found.tasks))),
            Entry(p_value(one.found.sign.p), f"sign-flip {p_value(one.found.signflip.p)}"),
        )
        for one in found
    ]
    return Table(
        "Prompt × preset: the difference of the presets under the first prompt minus that under the "
        "second, in points, "
        "paired over tasks (matched: certified by all four cells), 95 % task-bootstrap interval; p "
        "unadjusted.",
        ("Prompts", "Presets", "Target", "Difference of differences", "n tasks", "Sign p"),
        tuple(rows),
        headers=2,
    )


def group_table(found: Iterable[Grouped]) -> Table:
    """Named groups of presets."""
    rows = []
    for one in found:
        names = [f"{group.name} ({', '.join(group.quants)})" for group in (one.first, one.second)]
        sign = one.found.sign
        fisher = one.pooled
        rows.append(
            (
                Entry(one.key.name, one.policy),
                Entry(" − ".join(names)),
                _points(one.found.difference),
                Entry(
                    f"{len(one.found.tasks)}",
                    f"{sign.favour_first} up, {sign.ties} tied, {sign.favour_second} down",
                ),
                Entry(p_value(sign.p), f"smallest possible {p_value(sign.smallest_p)}"),
                Entry(
                    f"{one.successes[0]}/{fisher.n_first} against {one.successes[1]}/{fisher.n_second}",
                    f"p {p_value(fisher.p)}; {fisher.warning}",
                    True,
                ),
            )
        )
    return Table(
        "Named groups of presets on the tasks that every member certified, in points; each task counts "
        "with its mean "
        "over the group's members. 95 % task-bootstrap interval. Last column: pooled episodes, Fisher's "
        "exact test.",
        ("Cell", "Groups", "Difference", "n tasks", "Sign p", "Pooled episodes"),
        tuple(rows),
        headers=2,
        title="Named groups of presets",
    )


def family_table(contrasts: tuple[Contrast, ...], family: Family) -> Table:
    """Adjusted tests of one family."""
    rows = []
    for one in family.members:
        c = contrasts[one.place]
        names = (c.model, c.quant, c.prompt, c.fault if c.fault != USUAL else None)
        rows.append(
            (
                Entry(" ".join(name for name in names if name), c.policy),
                Entry(f"{c.a} − {c.b}"),
                Entry(TITLES[Target(c.target)].split(":")[0].lower()),
                Entry(signed(c.points), interval(c), not c.reliable),
                Entry(p_value(c.sign_p), _adjusted(one.sign_holm, one.sign_bh)),
                Entry(p_value(c.signflip_p), _adjusted(one.signflip_holm, one.signflip_bh)),
            )
        )
    tests = sum(one.sign_holm is not None for one in family.members)
    what = (
        "The declared family"
        if family.declared
        else "No family was declared; adjusted over one target and policy"
    )
    return Table(
        f"{what}: {tests} tests. Sign test and sign-flip test, plain p; below: adjusted by Holm "
        "(family-wise error) "
        "and by Benjamini and Hochberg (false discovery rate).",
        ("Where", "A − B", "Target", "Points", "Sign p", "Sign-flip p"),
        tuple(rows),
        headers=2,
        title=f"Tests of {'the declared family' if family.declared else 'one target and policy'}, adjusted",
    )


def together_table(found: Iterable[Together]) -> Table:
    """Simultaneous intervals over the prompts."""
    rows = []
    for one in found:
        entries = []
        for prompt, value, low, high in zip(one.prompts, one.points, one.lows, one.highs, strict=True):
            ends = "" if low is None or high is None else f" [{signed(low)}, {signed(high)}]".replace("+", "")
            entries.append(f"{prompt} {signed(value)}{ends}")
        critical = "–" if one.critical is None else f"{one.critical:.2f}"
        where = " ".join(part for part in (one.model, one.fault, one.policy) if part)
        rows.append(
            (
                Entry(where, one.context),
                Entry(f"{one.a} − {one.b}"),
                Entry(TITLES[Target(one.target)].lower()),
                Entry("\n".join(entries[:1]), "\n".join(entries[1:])),
                Entry(critical, f"{one.resamples:,} resamples"),
            )
        )
    return Table(
        "Intervals that hold for all prompts at once (95 %, max-T over joint task weights), in points; "
        "critical = their "
        "half-width in standard errors (1.96 for a single one).",
        ("Where", "A − B", "Target", "By prompt", "Critical"),
        tuple(rows),
        headers=2,
        title="Intervals that hold for all prompts at once",
    )


def _adjusted(by_holm: float | None, by_bh: float | None) -> str:
    if by_holm is None:
        return "no test"
    return f"Holm {p_value(by_holm)}, BH {p_value(by_bh)}"


def _points(found: Estimate) -> Entry:
    if found.value is None:
        return Entry("–", found.reason or "", True)
    ends = (
        ""
        if found.low is None or found.high is None
        else f"[{signed(100 * found.low)}, {signed(100 * found.high)}]".replace("+", "")
    )
    return Entry(signed(100 * found.value), ends, not found.reliable)
