"""A registration as a page for people: the same facts, in Markdown that needs nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from qfr.records import FaultKind
from qfr.registration.differences import flat
from qfr.registration.markup import fenced, inline, span, table
from qfr.registration.record import AnalysisPlan, FrozenCell, Record, Relation, digest_of, document, id_of

# Rows of the list of existing runs; the JSON holds all.
_MOST_RUNS = 60


def markdown(record: Record) -> str:
    """The page. It follows from the record alone, so it can be made again and compared."""
    sections = (
        _head(record),
        _hypotheses(record),
        _design(record),
        _settings(record),
        _files(record),
        _analysis(record.analysis),
        _existing(record),
        _code(record),
        _texts(record),
        _how(record),
    )
    return "\n".join(line for section in sections for line in (*section, "")).rstrip() + "\n"


def _head(record: Record) -> Iterator[str]:
    digest = digest_of(document(record))
    yield f"# {inline(record.title)}"
    yield ""
    yield from table(
        ("", ""),
        (
            ("registration", f"`{id_of(digest)}`"),
            ("SHA-256 of the JSON document", f"`{digest}`"),
            ("registered (UTC)", record.registered),
            ("label", f"**{record.label}**"),
            ("why this label", " ".join(record.reasons)),
            ("made by", f"qfr {record.code.qfr_version}"),
        ),
    )


def _hypotheses(record: Record) -> Iterator[str]:
    yield "## Hypotheses"
    yield ""
    if record.hypotheses is None:
        yield "None were given."
        return
    yield f"`{span(record.hypotheses.name)}`, SHA-256 `{record.hypotheses.sha256}`, word for word:"
    yield ""
    yield from fenced(record.hypotheses.text)


def _design(record: Record) -> Iterator[str]:
    asked = record.asked
    yield "## What runs"
    yield ""
    cleans = [cell for cell in record.cells if cell.fault == FaultKind.none]
    faulted = [cell for cell in record.cells if cell.fault != FaultKind.none]
    yield (
        f"{len(asked)} cells, on {len(cleans)} clean passes: at most "
        f"{sum(cell.episodes for cell in cleans)} clean episodes and "
        f"{sum(cell.episodes for cell in faulted)} with a fault. A cell is one model at one preset under one "
        "prompt with one kind of fault; its fault episodes run at every valid site of the tasks that its own "
        "clean pass certified. Decoding is greedy. Runs that existed before do not count: every cell is "
        "played anew."
    )
    yield ""
    yield from table(
        ("model", "preset", "prompt", "fault", "suite", "executor", "episodes ≤", "design"),
        (
            (cell.model, cell.quant, cell.prompt, cell.fault, cell.suite, cell.executor, str(cell.episodes),
             f"`{cell.design_id}`")
            for cell in record.cells
        ),
    )  # fmt: skip
    if record.excluded:
        yield ""
        yield "Combinations left out: " + "; ".join(f"`{span(one)}`" for one in record.excluded) + "."


def _settings(record: Record) -> Iterator[str]:
    yield "## Settings"
    yield ""
    yield "Every key that can change an episode. A key with several values says which cells have which."
    yield ""
    values: dict[str, dict[str, list[FrozenCell]]] = {}
    for cell in record.cells:
        for key, value in flat(cell.design).items():
            values.setdefault(key, {}).setdefault(value, []).append(cell)
    rows = []
    for key in sorted(values):
        shown = values[key]
        if len(shown) == 1 and sum(map(len, shown.values())) == len(record.cells):
            rows.append((key, f"`{span(next(iter(shown)))}`"))
        else:
            rows.append(
                (
                    key,
                    "; ".join(f"`{span(value)}` ({len(cells)} cells)" for value, cells in shown.items()),
                )
            )
    yield from table(("key", "value"), rows)


def _files(record: Record) -> Iterator[str]:
    yield "## Model files"
    yield ""
    if not record.files:
        yield "None: a scripted agent plays, which is no evidence about any model."
        return
    yield from table(
        ("model", "preset", "file", "SHA-256", "bytes", "repository, revision", "state"),
        (
            (
                file.model,
                file.preset,
                file.filename,
                f"`{file.sha256}`" if file.sha256 else "unknown",
                "" if file.bytes is None else str(file.bytes),
                " @ ".join(part for part in (file.repo_id, file.revision) if part),
                "; ".join(
                    part
                    for part in (
                        "at hand" if file.present else "not present yet",
                        "pinned" if file.pinned else "not pinned",
                        f"the preset is {file.made} from it" if file.made else "",
                    )
                    if part
                ),
            )
            for file in record.files
        ),
    )
    yield ""
    yield (
        f"llama.cpp commit `{record.llama_commit}` (known from: {record.llama_commit_source}), "
        f"llama-cpp-python {record.llama_cpp_python}."
    )


def _analysis(plan: AnalysisPlan) -> Iterator[str]:
    drawn = f", {plan.resamples} resamples, seed {plan.seed}" if plan.method == "montecarlo" else ""
    yield "## Analysis plan"
    yield ""
    yield from (
        f"- Contrasts vary **{plan.vary}** with everything else fixed; A minus B in points.",
        f"- Targets: {', '.join(plan.targets)}.",
        f"- Scoring policies: {', '.join(plan.policies)} (the first is the headline; both from one log).",
        f"- EP: a report counts after {plan.ep_min_calls} calls of the dead tool.",
        f"- Intervals: {plan.level:.0%}, percentile task bootstrap, method {plan.method}{drawn}. The task is "
        "the unit. Exact sign test without ties and sign-flip test beside them.",
        f"- Equivalence margin: {plan.equivalence_margin_points:g} points.",
        f"- Family: {plan.family}",
        *(f"- In the family: {inline(selected(one))}." for one in plan.selectors),
        *([f"- Groups of presets compared: {inline(plan.groups)}."] if plan.groups else []),
        *(
            f"- {one.tasks} tasks detect differences from "
            + (
                "no size on"
                if one.points is None
                else f"{one.points:g} points on (power 80 %, all certified)"
            )
            + "."
            for one in plan.detectable
        ),
    )
    yield ""
    yield "Rules of exclusion:"
    yield ""
    yield from (f"- {rule}" for rule in plan.exclusions)
    yield ""
    yield f"Planned contrasts ({len(plan.contrasts)}), each for every target and policy above:"
    yield ""
    axes = [axis for axis in ("model", "quant", "prompt", "fault", "executor") if axis != plan.vary]
    yield from table(
        ("A", "B", *axes, "suite"),
        ((one.a, one.b, *(str(getattr(one, axis)) for axis in axes), one.suite) for one in plan.contrasts),
    )


def selected(selector: Mapping[str, str]) -> str:
    """One selector of the family, in words."""
    return ", ".join(f"{field} = {values}" for field, values in selector.items())


def _existing(record: Record) -> Iterator[str]:
    yield "## What existed already"
    yield ""
    yield " ".join(record.reasons)
    if not record.existing:
        return
    counts = Counter((run.relation, run.complete) for run in record.existing)
    for kind in Relation:
        yield (
            f"Of {kind if kind is Relation.grid else 'siblings'}: {counts[kind, True]} finished, "
            f"{counts[kind, False]} unfinished runs."
        )
    yield ""
    yield from table(
        (
            "relation",
            "run",
            "started (UTC)",
            "state",
            "experiment",
            "registration",
            "log SHA-256",
            "MLflow run",
        ),
        (
            (
                run.relation,
                run.name,
                run.started,
                ("finished" if run.complete else run.status.lower()) + (", deleted" if run.deleted else ""),
                run.experiment,
                run.registration,
                f"`{run.log_sha256[:12]}`" if run.log_sha256 else "",
                f"`{run.run_id}`",
            )
            for run in record.existing[:_MOST_RUNS]
        ),
    )
    if len(record.existing) > _MOST_RUNS:
        yield ""
        yield f"… and {len(record.existing) - _MOST_RUNS} more in the JSON document."


def _code(record: Record) -> Iterator[str]:
    code = record.code
    yield "## Code"
    yield ""
    commit = f"git commit `{code.commit}`" if code.commit else "no git checkout"
    packages = ", ".join(f"{name} {version}" for name, version in sorted(code.packages.items()))
    yield f"qfr {code.qfr_version}, {commit}."
    yield f"SHA-256 over its {len(code.files)} Python files: `{code.sha256}`."
    yield f"Python {code.python}; {packages}."
    if code.dirty:
        yield ""
        yield "**The code was not committed.** What differs from the commit:"
        yield ""
        yield from fenced(code.diff)


def _texts(record: Record) -> Iterator[str]:
    yield "## Prompts and suites"
    for text in record.prompts:
        yield ""
        yield f"### Prompt `{span(text.name)}`"
        yield ""
        if text.base_file is not None:
            yield f"Made from `{span(text.base_file)}` (SHA-256 `{text.base_sha256}`) by the code."
            yield ""
        yield f"SHA-256 `{text.sha256}`:"
        yield ""
        yield from fenced(text.text)
    for suite in record.suites:
        families = ", ".join(f"{n} {family}" for family, n in Counter(suite.families).items())
        yield ""
        yield f"### Suite `{span(suite.name)}`"
        yield ""
        yield (
            f"{suite.tasks} tasks ({families}), SHA-256 `{suite.sha256}`. Every task, gold path, answer and "
            "record stands in the JSON document."
        )


def _how(record: Record) -> Iterator[str]:
    name = id_of(digest_of(document(record)))
    yield "## How to check"
    yield ""
    yield f"`sha256sum {name}.json` gives the digest above. `qfr verify {name}` derives everything again."
