"""A card for a model page: what a sweep shows of one model's files, as Markdown, SVG, badges and hub entries.

Everything here follows from a report, so that `qfr verify CARD BUNDLE` derives it again from the bundle. The
words are those of the page; a badge exists only for a verdict that is settled under every prompt and rests on
no flagged interval.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from qfr.analysis.contrast.ranking import Ranked
from qfr.analysis.contrast.ranking import Ranking as Ranks
from qfr.analysis.results import Kind, Result
from qfr.errors import ConfigError, did_you_mean
from qfr.facts import CellFacts
from qfr.report.content.build import Report
from qfr.report.tables.formats import NONE, ends, number, percent, signed
from qfr.report.tables.ranking import rankings

CARD, FIGURE, HUB = "card.md", "card.svg", Path(".eval_results", "qfr.yaml")
_HEAD = re.compile(
    r"<!-- qfr card: sweep (?P<sweep>s-[0-9a-z-]+), model (?P<model>\S+), policy (?P<policy>\w+),"
    r" margin (?P<margin>[0-9.]+)(?:, dataset (?P<dataset>\S+))? -->"
)
# Widths of the figure, in pixels: names, plot, numbers.
_NAMES, _PLOT, _NUMBERS, _ROW = 170, 380, 150, 24


@dataclass(frozen=True)
class CardRequest:
    """What a card is of; its first line says it, so that the card can be derived again."""

    sweep: str
    model: str
    policy: str
    margin: float
    # In points.
    dataset: str | None = None
    # Dataset on the Hugging Face hub under which results are entered; None = no entries.

    @property
    def head(self) -> str:
        """The card's first line."""
        dataset = f", dataset {self.dataset}" if self.dataset else ""
        return (
            f"<!-- qfr card: sweep {self.sweep}, model {self.model}, policy {self.policy}, "
            f"margin {self.margin:g}{dataset} -->"
        )

    @classmethod
    def read(cls, card: Path) -> CardRequest:
        """What a card says it is of.

        Raises
        ------
        ConfigError
            It cannot be read, or is no card.
        """
        try:
            first = card.read_text("utf-8").partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the card cannot be read ({error})", where=str(card)) from None
        found = _HEAD.fullmatch(first.strip())
        if found is None:
            raise ConfigError(
                "this is no card of qfr: its first line does not say what it is of",
                where=str(card),
                hint="give the card.md that qfr card wrote, first line included",
            )
        return cls(found["sweep"], found["model"], found["policy"], float(found["margin"]), found["dataset"])


def models_of(report: Report) -> tuple[str, ...]:
    """The models that a report ranks."""
    return tuple(dict.fromkeys(one.key.model for one in report.ranks))


def files_of(report: Report, request: CardRequest) -> dict[Path, bytes]:
    """Every file of a card, by its path below the card's folder.

    Raises
    ------
    ConfigError
        The report does not rank the model, or under several settings.
    """
    ranks = _ranks(report, request)
    files = {Path(CARD): markdown(report, request), Path(FIGURE): figure(report, ranks)}
    files |= {
        Path(f"badge-{_plain(one.name)}.json"): json.dumps(made, ensure_ascii=False, indent=1) + "\n"
        for one in ranks.presets
        if (made := badge(report, ranks, one)) is not None
    }
    if request.dataset:
        files[HUB] = yaml.safe_dump(
            hub_entries(report, request), allow_unicode=True, sort_keys=False, width=200
        )
    return {path: text.encode("utf-8") for path, text in files.items()}


def markdown(report: Report, request: CardRequest) -> str:
    """The Markdown block."""
    ranks = _ranks(report, request)
    (told,) = (
        view
        for view, one in zip(
            rankings(report), [r for r in report.ranks if r.policy == request.policy], strict=True
        )
        if one is ranks
    )
    facts = _facts(report, ranks)
    lines = [request.head, f"### {request.model} as a tool-using agent, when tools fail", ""]
    if facts[0].reference_agent:
        lines += ["> A reference agent of qfr: no evidence about any other model.", ""]
    lines += [f"**{told.advice}**", "", *(f"{line}  " for line in told.more)]
    for prompt in ranks.prompts:
        lines += ["", f"Prompt {prompt}:", "", *_table(report, ranks, prompt)]
    lines += ["", f"![Full pipeline, difference to {ranks.reference}, by prompt]({FIGURE})", ""]
    lines += [*_made_of(report, ranks, facts), ""]
    return "\n".join(lines)


def badge(report: Report, ranks: Ranks, one: Ranked) -> dict[str, object] | None:
    """A badge in the form of the endpoint of shields.io; None where nothing is settled, or one is flagged."""
    if one.name == ranks.reference or not ranks.reference:
        return None
    labels = {there.label for there in one.prompts}
    rows = [_contrast(report, ranks, one.name, prompt) for prompt in ranks.prompts]
    sound = all(row is not None and row.reliable and not row.degenerate for row in rows)
    shown = all(there.shown for there in one.prompts)
    worse = one.name in ranks.worse_everywhere
    if not sound or not (shown or worse) or len(one.prompts) != len(ranks.prompts) or len(labels) != 1:
        return None
    tasks = max(row.n_tasks or 0 for row in rows if row is not None)
    return {
        "schemaVersion": 1,
        "label": f"{one.name} against {ranks.reference}, tools that fail",
        "message": f"{labels.pop()} ({tasks:,} tasks)",
        "color": "red" if worse else "brightgreen",
    }


def hub_entries(report: Report, request: CardRequest) -> list[dict[str, Any]]:
    """Entries of `.eval_results/*.yaml` for the Hugging Face hub: full-pipeline success in per cent."""
    assert request.dataset
    ranks = _ranks(report, request)
    facts = _facts(report, ranks)[0]
    return [
        {
            "dataset": {"id": request.dataset, "task_id": f"{facts.suite}.{ranks.key.fault}.{prompt}"},
            "value": round(100 * row.value, 4),
            "notes": (
                f"{one.name}, full pipeline, {request.policy} scoring, prompt {prompt}, "
                f"{row.n_tasks} tasks, suite SHA-256 {facts.suite_sha256[:12]}, {_build(facts)}"
            ),
        }
        for one in ranks.presets
        for prompt in ranks.prompts
        if (row := _rate(report, ranks, one, prompt, "full")) is not None and row.value is not None
    ]


def figure(report: Report, ranks: Ranks) -> str:
    """Differences to the reference with their intervals as an SVG."""
    rows = [
        (one, prompt, row)
        for prompt in ranks.prompts
        for one in ranks.presets
        if (row := _contrast(report, ranks, one.name, prompt)) is not None and row.points is not None
    ]
    turned = [_turned(row, one.name) for one, _, row in rows]
    low_end = min([-ranks.margin, *(low for low, _, _ in turned)])
    high_end = max([ranks.margin, *(high for _, _, high in turned)])

    def x(points: float) -> str:
        return f"{_NAMES + _PLOT * (points - low_end) / (high_end - low_end):.1f}"

    height, width = _ROW * (len(rows) + 2) + 12, _NAMES + _PLOT + _NUMBERS
    title = f"Full pipeline, difference to {ranks.reference} in points, 95 % Bayesian bootstrap over tasks"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="sans-serif" font-size="12">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="16" fill="#1b1f24">{html.escape(title)}</text>',
    ]
    bottom = _ROW * (len(rows) + 1)
    for points, dash, anchor in ((0.0, "", "start"), (-ranks.margin, ' stroke-dasharray="4 3"', "end")):
        out.append(
            f'<line x1="{x(points)}" y1="{_ROW}" x2="{x(points)}" y2="{bottom}" stroke="#59626d"{dash}/>'
        )
        out.append(
            f'<text x="{x(points)}" y="{bottom + 16}" fill="#59626d" text-anchor="{anchor}">'
            f"{signed(points, 0)}</text>"
        )
    for at, ((one, prompt, row), (low, points, high)) in enumerate(zip(rows, turned, strict=True), 1):
        told = f"{signed(points)} {ends(low, high)}"
        y, colour = _ROW * at + 12, "#0b5cad" if row.reliable else "#8a929c"
        fill = colour if row.reliable else "#ffffff"
        out += [
            f'<text x="8" y="{y + 4}" fill="#1b1f24">{html.escape(f"{one.name}, {prompt}")}</text>',
            f'<line x1="{x(low)}" y1="{y}" x2="{x(high)}" y2="{y}" stroke="{colour}" stroke-width="2"/>',
            f'<circle cx="{x(points)}" cy="{y}" r="4" fill="{fill}" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{_NAMES + _PLOT + 10}" y="{y + 4}" fill="#1b1f24">{told}</text>',
        ]
    return "\n".join([*out, "</svg>", ""])


def _table(report: Report, ranks: Ranks, prompt: str) -> Iterable[str]:
    head = ("File", "Full pipeline", "Recovery", "Won / lost", "Stuck", "Tokens per solved", "GB", "Tokens/s")
    yield "| " + " | ".join((*head, "Verdict")) + " |"
    yield "|" + " --- |" * (len(head) + 1)
    for one in ranks.presets:
        there = one.under(prompt)
        if there is None:
            continue
        full, own = (_rate(report, ranks, one, prompt, target) for target in ("full", "own"))
        stuck = _row(report, Kind.waste, ranks, one.name, prompt=prompt, item="stuck")
        tokens = _row(report, Kind.waste, ranks, one.name, prompt=prompt, item="tokens per solved")
        speed = _row(report, Kind.cost, ranks, one.name, item="decoding speed")
        entries = [
            one.name,
            _share(full),
            _share(own) + (f" ({own.count_a} of {own.of_a})" if own is not None and own.of_a else ""),
            _won(_contrast(report, ranks, one.name, prompt), one.name),
            NONE if stuck is None or stuck.count_a is None else f"{stuck.count_a} of {stuck.of_a}",
            NONE if tokens is None else number(tokens.value, 0),
            number(one.bytes / 1e9, 3) if one.bytes else NONE,
            NONE if speed is None else number(speed.value, 0),
            there.label,
        ]
        yield "| " + " | ".join(entry.replace("|", "\\|") for entry in entries) + " |"


def _made_of(report: Report, ranks: Ranks, facts: Sequence[CellFacts]) -> Iterable[str]:
    first = facts[0]
    sizes = sorted({row.n_tasks for row in report.results if row.kind == Kind.rank and row.n_tasks})
    digests = ", ".join(
        f"{name} `{digest}`" for name, digest in dict.fromkeys((f.quant, f.model_sha256[:12]) for f in facts)
    )
    yield (
        f"*Full pipeline*: success on all tasks, with a fault (`{ranks.key.fault}`) at every site of the "
        "tasks passed without one. *Recovery*: on the tasks that the file itself passes. *Won / lost*: "
        f"tasks on which it does better or worse than {ranks.reference}. [ ] are 95 % bootstrap intervals "
        "over tasks; ~ marks one that is too short. Verdicts: margin "
        f"{ranks.margin:g} points, {ranks.policy} scoring."
    )
    yield ""
    suite = f"suite {first.suite}, SHA-256 `{first.suite_sha256[:12]}`"
    yield (
        f"{' or '.join(map(str, sizes)) or NONE} tasks ({suite}); {_build(first)}; GGUF SHA-256: {digests}. "
        f"Check it: `qfr verify {CARD} BUNDLE`."
    )


def _build(facts: CellFacts) -> str:
    if facts.llama_commit:
        return f"llama.cpp {facts.llama_commit[:12]} on {facts.device or 'an unknown device'}"
    return f"engine {facts.engine}"


def _ranks(report: Report, request: CardRequest) -> Ranks:
    found = [one for one in report.ranks if one.policy == request.policy and one.key.model == request.model]
    if not found:
        names = models_of(report)
        raise ConfigError(
            f"no model {request.model!r} in that sweep" + did_you_mean(request.model, names),
            hint="--model " + " or ".join(names),
        )
    if len(found) > 1:
        labels = "; ".join(
            one.label or f"{one.key.suite} {one.key.fault} {one.key.executor}" for one in found
        )
        raise ConfigError(
            f"{request.model} was played under {len(found)} settings ({labels})",
            hint="a card is of one setting: make a sweep of that setting alone (qfr report shows them all)",
        )
    return found[0]


def _facts(report: Report, ranks: Ranks) -> list[CellFacts]:
    cells = {cell for one in ranks.presets for cell in one.cells}
    return [one for one in report.facts if one.cell_id in cells] or list(report.facts)


def _row(report: Report, kind: Kind, ranks: Ranks, preset: str, **wanted: object) -> Result | None:
    rows = (
        row
        for row in report.results
        if row.kind == kind
        and row.model == ranks.key.model
        and row.fault == ranks.key.fault
        and row.a == preset
        and row.policy in (ranks.policy, None)
        and all(getattr(row, name) == value for name, value in wanted.items())
    )
    return next(rows, None)


def _rate(report: Report, ranks: Ranks, one: Ranked, prompt: str, target: str) -> Result | None:
    return _row(report, Kind.rate, ranks, one.name, prompt=prompt, target=target, family=None, item="")


def _contrast(report: Report, ranks: Ranks, preset: str, prompt: str) -> Result | None:
    """The full-pipeline contrast of a preset with the reference, whichever of the two stands first."""
    for row in report.results:
        if (
            row.kind == Kind.contrast
            and (row.model, row.fault, row.prompt) == (ranks.key.model, ranks.key.fault, prompt)
            and (row.policy, row.target, row.family) == (ranks.policy, "full", None)
            and {row.a, row.b} == {preset, ranks.reference}
        ):
            return row
    return None


def _turned(row: Result, preset: str) -> tuple[float, float, float]:
    """Ends and difference as the preset minus the reference, in points."""
    low = row.bayes_low if row.bayes_low is not None else row.points
    high = row.bayes_high if row.bayes_high is not None else row.points
    assert low is not None
    assert high is not None
    assert row.points is not None
    return (low, row.points, high) if row.a == preset else (-high, -row.points, -low)


def _won(row: Result | None, preset: str) -> str:
    if row is None or row.favour_a is None or row.favour_b is None:
        return NONE
    won, lost = (row.favour_a, row.favour_b) if row.a == preset else (row.favour_b, row.favour_a)
    return f"{won} / {lost}"


def _share(row: Result | None) -> str:
    if row is None or row.value is None:
        return NONE
    if row.low is None or row.high is None:
        return percent(row.value)
    mark = "" if row.reliable else "~"
    return f"{percent(row.value)} [{100 * row.low:.0f}, {100 * row.high:.0f}]{mark}"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)
