"""The report as Markdown, short enough for a pull request: answer, contrasts, warnings, command."""

from __future__ import annotations

import re
from collections.abc import Iterable

from qfr.report.content.build import Report
from qfr.report.layout import groups, memory_groups
from qfr.report.notices import notices
from qfr.report.page import clip
from qfr.report.tables.contrasts import contrast_table
from qfr.report.tables.formats import spelled
from qfr.report.tables.ranking import rankings
from qfr.report.tables.registration import standing_table
from qfr.report.tables.replication import replication
from qfr.report.tables.specs import Entry, Table
from qfr.report.words import answers, overview, varies

#: Marks up, links, mentions someone or refers to an issue; model text may do none of these.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>|#~!&@$]|https?:|www\.")
_INVISIBLE = re.compile("[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "#": "&#35;", "|": "&#124;", "$": "&#36;"}


def render_markdown(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown under the headline policy."""
    options = report.options
    lines = [f"## {escaped(options.title)}", ""]
    if report.reference_agents:
        names = ", ".join(escaped(name) for name in report.reference_agents)
        lines += [f"> **Reference agents** ({names}): no evidence about any other model.", ""]
    if told := varies(report):
        lines += [escaped(told), ""]
    for one in rankings(report):
        lines += ["", f"### {escaped(one.title)}", "", f"**{escaped(one.advice)}**", ""]
        lines += [f"{escaped(line)}  " for line in one.more]
        if one.levels.rows:
            lines += ["", *_table(one.levels)]
        lines += ["", *_table(one.table)]
    lines += ["", *(f"{escaped(line)}  " for line in overview(report))]
    for answer in answers(report):
        lines += ["", f"#### {escaped(answer.title)}: preset against preset", ""]
        if answer.flag:
            lines.append(f"- 🚩 **{escaped(answer.flag)}**")
        lines += [f"  - {escaped(flag)}" for flag in answer.flags]
        lines += [f"- {escaped(line.text)}" for line in answer.lines]
    for group in groups(report, options.policy.value):
        folded = _table(contrast_table((group,)))
        title = f"Contrasts of {escaped(group.title)}{group.scoring}"
        lines += ["", f"<details><summary>{title}</summary>", "", *folded, "", "</details>"]
    for group in memory_groups(report, options.policy.value):
        title = f"{escaped(group.title)} at equal memory, {options.policy.value} scoring"
        table = _table(contrast_table((group,)))
        lines += ["", f"<details><summary>{title}</summary>", "", *table, "", "</details>"]
    for plan in report.followed:
        lines += ["", "### Planned, deviated, exploratory", "", f"**{escaped(plan.title)}**", ""]
        lines += [_whole(plan.summary)]
        if plan.missing:
            lines += ["", "Planned cells that are missing:", ""]
            lines += [f"- {escaped(name)}" for name in plan.missing]
        lines += ["", *_table(standing_table(plan, report.contrasts))]
    beside = replication(report)
    if beside is not None:
        lines += ["", f"### Beside {escaped(beside.title)}", ""]
        lines += [escaped(text) for text in (beside.warning, beside.summary) if text]
        lines += ["", *_table(beside.contrasts)]
    found = notices(report)
    if found:
        lines += ["", "### Warnings", ""]
    for notice in found:
        lines.append(f"- **{escaped(notice.title)}** {escaped(notice.text)}")
        lines += [f"  - {escaped(item)}" for item in notice.items]
    if options.command:
        lines += ["", f"Made by <code>{escaped(options.command)}</code>"]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return a text in which nothing is markup, a link or a mention, on one line and clipped."""
    return _whole(clip(text))


def _whole(text: str) -> str:
    plain = _INVISIBLE.sub(lambda found: f"\\x{ord(found.group()):02x}", spelled(text))
    plain = " ".join(plain.split())
    return _SPECIAL.sub(lambda found: _harmless(found.group()), plain)


def _harmless(found: str) -> str:
    if found in _HTML:
        return _HTML[found]
    # A link is written out so that nothing makes it one.
    return f"\\{found}" if len(found) == 1 else found.replace(":", "&#58;").replace(".", "&#46;")


def _table(table: Table) -> Iterable[str]:
    if not table.rows:
        return []
    head = "| " + " | ".join(escaped(name) for name in table.head) + " |"
    rule = "|" + " --- |" * len(table.head)
    rows = ["| " + " | ".join(_entry(cell) for cell in row) + " |" for row in table.rows]
    return [head, rule, *rows, "", f"<sub>{escaped(table.caption)}</sub>"]


def _entry(cell: Entry) -> str:
    small = [escaped(line) for line in cell.small.split("\n") if line]
    return "<br>".join([escaped(cell.text), *(f"<sub>{line}</sub>" for line in small)])
