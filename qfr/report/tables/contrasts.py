"""Tables of contrasts: pairs of cells, ladder, interactions, groups, several tests at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qfr.analysis.contrast.family import Family, Together
from qfr.analysis.contrast.groups import Grouped, Interaction
from qfr.analysis.contrast.ladder import KINDS, Ladder
from qfr.analysis.levels import NOT_STATED, Axis
from qfr.analysis.results import Contrast, Result
from qfr.analysis.rows import contrast_row, group_row, interaction_row, ladder_rows, together_rows
from qfr.analysis.targets import Target
from qfr.faults import FAULTS, USUAL
from qfr.report.layout import TITLES, Group, interval
from qfr.report.tables.formats import NONE, ends, p_value, percent, percents, signed
from qfr.report.tables.specs import PAIR, Column, Entry, Line, Table, named, of, points, table


def contrast_table(pair_of_policies: tuple[Group, ...]) -> Table:
    """Contrasts of one group under each policy (Hu 2026, table 4)."""
    first = pair_of_policies[0]
    head = [*_along_title(first), "A − B"]
    head += [
        first.titled(target) + ("" if first.logs else f", {group.policy}")
        for group in pair_of_policies
        for target in first.panels
    ]
    rows = []
    for row in first.rows:
        for pair in first.pairs:
            cells = [*_along(first, row), Entry(f"{pair[0]} − {pair[1]}")]
            for group in pair_of_policies:
                cells += [_contrast_cell(group.find(row, pair, target)) for target in first.panels]
            rows.append(tuple(cells))
    return Table(
        "Differences A − B in points with 95 % percentile task-bootstrap intervals; "
        + ("" if first.logs else "by family: resampled within task families, whose sizes the suite fixes; ")
        + "n = tasks that enter; sign p = two-sided sign test without ties, unadjusted.",
        tuple(head),
        tuple(rows),
        headers=len(_along_title(first)) + 1,
    )


def further_table(group: Group) -> Table:
    """Clean pass, S*, ungated, and what the full-pipeline difference is made of."""
    if group.logs:
        # Nothing was injected: the one target stands in the table above.
        return Table("", (), ())
    targets = [
        t
        for t in (Target.clean, Target.s_star, Target.ungated)
        if any(c.target == t for c in group.contrasts)
    ]
    parts = {
        "Full pipeline": "points",
        "certified by both": "shared_points",
        "by A only": "only_a_points",
        "by B only": "only_b_points",
        "screening": "screening_points",
        "rates on own sets": "own_rates_points",
    }
    head = [*_along_title(group), "A − B", *(TITLES[target] for target in targets), *parts]
    head.append("Had all tasks met a fault")
    rows = []
    for row in group.rows:
        for pair in group.pairs:
            found = (group.find(row, pair, target) for target in targets)
            full = group.find(row, pair, Target.full)
            name = full.id if full else ""
            open_ = ends(full.ungated_low_points, full.ungated_high_points) if full else ""
            split = (Entry(signed(getattr(full, column, None)), id=name) for column in parts.values())
            names = (Entry(row), Entry(f"{pair[0]} − {pair[1]}"))
            rows.append((*names, *map(_contrast_cell, found), *split, Entry(open_, id=name)))
    return Table(
        "Further targets, and two exact splits of the full-pipeline difference in points: by who certified "
        "the task, and into screening (how many tasks are certified) and rates on own sets (of these). "
        "Last column: bounds of the difference had faults run on uncertified tasks too, whatever came of it.",
        tuple(head),
        tuple(rows),
        headers=2,
    )


def strata_table(group: Group) -> Table:
    """Family strata: the same estimators within each task family."""
    head = [*_along_title(group), "A − B", "Family", *(group.titled(target) for target in group.panels)]
    rows = [
        (
            *_along(group, row),
            Entry(f"{pair[0]} − {pair[1]}"),
            Entry(family),
            *(_contrast_cell(group.find(row, pair, target, family)) for target in group.panels),
        )
        for row in group.rows
        for pair in group.pairs
        for family in group.families
    ]
    return Table(
        f"The same differences within each task family{group.scoring}, in points.",
        tuple(head),
        tuple(rows),
        headers=len(_along_title(group)) + 2,
    )


def _along_title(group: Group) -> tuple[str, ...]:
    """Head of the column that names the row; there is none where no log names a prompt."""
    if group.rows == (NOT_STATED,):
        return ()
    return ("Preset" if group.along is Axis.quant else "Prompt",)


def _along(group: Group, row: str) -> tuple[Entry, ...]:
    return (Entry(row),) if _along_title(group) else ()


def _contrast_cell(c: Contrast | None) -> Entry:
    if c is None:
        return Entry("not run", "", True)
    n = f"n {c.n_tasks_a}/{c.n_tasks_b}" if c.target == Target.own else f"n {c.n_tasks}"
    if c.points is None:
        return Entry("–", f"{n}: {c.reason}", True, id=c.id)
    if c.sign_p is not None:
        n += f", sign p {p_value(c.sign_p)}"
    within = ends(c.strata_low, c.strata_high)
    lines = (interval(c), within and f"{within} by family", n, "degenerate" if c.degenerate else "")
    return Entry(signed(c.points), "\n".join(line for line in lines if line), not c.reliable, id=c.id)


def ladder_table(ladder: Ladder) -> Table:
    """Clean pass, each kind of fault, and invented answers (Hu 2026, table 3)."""
    rows = tuple(ladder_rows(ladder))
    kinds = [kind for kind in KINDS if any(one.fault == kind for one in rows)]

    def clean(line: Line) -> Entry:
        one, few = line[0], line[0].reliable is False
        return Entry(f"{one.certified_a}/{one.n_tasks_a}", "few" if few else "", few, id=one.id)

    def step(one: Result) -> Entry:
        share = "" if one.value is None else f"{percent(one.value, 0)} {percents(one.low, one.high, 0)}"
        return Entry(f"{one.count_a}/{one.of_a}", share.strip(), one.reliable is False, id=one.id)

    def invented(one: Result) -> Entry:
        return Entry(str(one.count_a), id=one.id)

    steps = (of(f"{FAULTS[kind].title} ({kind})", step, fault=str(kind), missing="not run") for kind in kinds)
    return table(
        rows,
        lambda one: one.a,
        (
            named("Preset", lambda one: one.a or ""),
            Column("Clean", clean),
            *steps,
            of("Invented", invented, item="invented"),
        ),
        "Each preset on its own certified tasks: certified tasks of all, successful of delivered fault "
        "episodes with the Wilson 95 % interval, and answers invented although the dead tool made them "
        "unknowable.",
        headers=1,
    )


def interaction_table(found: Iterable[Interaction]) -> Table:
    """Differences of differences."""
    return table(
        map(interaction_row, found),
        lambda one: one.id,
        (
            named("Prompts", lambda one: f"{one.prompt} − {one.item}"),
            named("Presets", lambda one: f"{one.a} − {one.b}"),
            _target(),
            of("Difference of differences", points),
            of("n tasks", lambda one: Entry(str(one.n_tasks), id=one.id)),
            of(
                "Sign p",
                lambda one: Entry(p_value(one.sign_p), f"sign-flip {p_value(one.signflip_p)}", id=one.id),
            ),
        ),
        "Prompt × preset: the difference of the presets under the first prompt minus that under the second, "
        "in points, paired over tasks (matched: certified by all four cells), 95 % task-bootstrap interval; "
        "p unadjusted.",
    )


def group_table(found: Iterable[Grouped]) -> Table:
    """Named groups of presets."""

    def sides(one: Result) -> str:
        first, second = one.item.split(" − ")
        return f"{one.a} ({first}) − {one.b} ({second})"

    def tasks(one: Result) -> Entry:
        told = f"{one.favour_a} up, {one.ties} tied, {one.favour_b} down"
        return Entry(f"{one.n_tasks}", told, id=one.id)

    def pooled(one: Result) -> Entry:
        told = f"{one.count_a}/{one.of_a} against {one.count_b}/{one.of_b}"
        return Entry(told, f"p {p_value(one.fisher_p)}; {'; '.join(one.remarks)}", True, id=one.id)

    def sign(one: Result) -> Entry:
        return Entry(p_value(one.sign_p), f"smallest possible {p_value(one.smallest_p)}", id=one.id)

    return table(
        map(group_row, found),
        lambda one: one.id,
        (
            named("Cell", _where, lambda one: one.policy or ""),
            named("Groups", sides),
            of("Difference", points),
            of("n tasks", tasks),
            of("Sign p", sign),
            of("Pooled episodes", pooled),
        ),
        "Named groups of presets on the tasks that every member certified, in points; each task counts with "
        "its mean over the group's members. 95 % task-bootstrap interval. Last column: pooled episodes, "
        "Fisher's exact test.",
        title="Named groups of presets",
    )


def family_table(contrasts: Sequence[Contrast], family: Family) -> Table:
    """Adjusted tests of one family."""

    def adjusted(plain: float | None, by_holm: float | None, by_bh: float | None, name: str) -> Entry:
        told = "no test" if by_holm is None else f"Holm {p_value(by_holm)}, BH {p_value(by_bh)}"
        return Entry(p_value(plain), told, id=name)

    tests = sum(one.sign_holm is not None for one in family.members)
    what = (
        "The declared family"
        if family.declared
        else "No family was declared; adjusted over one target and policy"
    )
    return table(
        (contrast_row(contrasts[one.place], one) for one in family.members),
        lambda one: one.id,
        (
            named("Where", _where, lambda one: one.policy or ""),
            PAIR,
            _target(),
            of("Points", points),
            of("Sign p", lambda one: adjusted(one.sign_p, one.sign_holm_p, one.sign_bh_p, one.id)),
            of(
                "Sign-flip p",
                lambda one: adjusted(one.signflip_p, one.signflip_holm_p, one.signflip_bh_p, one.id),
            ),
        ),
        f"{what}: {tests} tests. Sign test and sign-flip test, plain p; below: adjusted by Holm "
        "(family-wise error) and by Benjamini and Hochberg (false discovery rate).",
        title=f"Tests of {'the declared family' if family.declared else 'one target and policy'}, adjusted",
    )


def together_table(found: Iterable[Together]) -> Table:
    """Simultaneous intervals over the prompts."""

    def by_prompt(line: Line) -> Entry:
        told = [f"{one.prompt} {signed(one.points)} {ends(one.low, one.high)}".strip() for one in line]
        return Entry(told[0], "\n".join(told[1:]), id=" ".join(one.id for one in line))

    def critical(line: Line) -> Entry:
        one = line[0]
        value = NONE if one.critical is None else f"{one.critical:.2f}"
        return Entry(value, f"{one.resamples:,} resamples", id=one.id)

    return table(
        (row for one in found for row in together_rows(one)),
        lambda one: (one.model, one.fault, one.policy, one.scope, one.a, one.b, one.target),
        (
            named(
                "Where",
                lambda one: " ".join(part for part in (one.model, one.fault, one.policy) if part),
                lambda one: one.scope,
            ),
            PAIR,
            _target(),
            Column("By prompt", by_prompt),
            Column("Critical", critical),
        ),
        "Intervals that hold for all prompts at once (95 %, max-T over joint task weights), in points; "
        "critical = their half-width in standard errors (1.96 for a single one).",
        title="Intervals that hold for all prompts at once",
    )


def _target() -> Column:
    return named("Target", lambda one: TITLES[Target(one.target or "")].split(":")[0].lower())


def _where(one: Result) -> str:
    names = (
        one.model,
        one.level and one.level.lower(),
        one.prompt,
        one.fault if one.fault != USUAL else None,
    )
    return " ".join(name for name in names if name)
