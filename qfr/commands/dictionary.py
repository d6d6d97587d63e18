"""Print what every field of the logs and every column of the tables means, as Markdown.

Made from the code that writes them: from the line under each field of a record, and from the meanings that
stand beside the columns. docs/data_dictionary.md is this text.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from types import ModuleType

import pyarrow as pa

from qfr import facts, records
from qfr.analysis import results
from qfr.errors import QfrError
from qfr.tracking.reading.facts_io import PARAM_FIELDS
from qfr.tracking.reading.tables import (
    CALL_MEANINGS,
    CALLS,
    EPISODE_MEANINGS,
    EPISODES,
    KEY_MEANINGS,
    LOOP_FILE,
    LOOP_MEANINGS,
    LOOPS,
    SCORES,
)

_TIMING: Mapping[str, str] = {
    "task": "Task id within the suite.",
    "fault": "Kind injected in the episode.",
    "site": "Index of the fault's site; -1 for a clean episode.",
    "trial": "Repetition of the cell.",
    "seconds": "What the episode took.",
    "ended": "When it ended, in seconds since 1970.",
    "pid": "Process that played it; left out of archives.",
    "beside": "Served models: what came beside the texts of turns (reasoning, refusals), as JSON; left out "
    "of archives.",
}

_FILES: Mapping[str, str] = {
    "episodes.jsonl.gz": "The log: one episode a line, canonical JSON in fixed order. Tables follow from it.",
    "episodes.parquet, calls.parquet": "One row per episode, one per turn.",
    "scores/POLICY@VERSION.parquet": "One row per episode: what a policy says of it. Never written over.",
    "prompt.md": "The system prompt's exact bytes.",
    "suite.json": "Tools, tasks, gold paths, answers and records of the suite.",
    "config.yaml": "The resolved configuration.",
    "timing.jsonl": "Times of the episodes, which the log holds none of.",
    "manifest.json": "SHA-256 of all of these; its own is the tag qfr.manifest_sha256.",
}

_INTRO = """# Data dictionary

Every field that qfr logs and every column that it writes. This page is made from the code
(`qfr dictionary > docs/data_dictionary.md`); a test sees that it is current.

Units stand in the names: `…_points` differences in points (−100 … 100), `…_rate` fractions (0 … 1),
`…_tasks`, `…_episodes`, `…_turns`, `…_calls` and `…_tokens` counts, `…_p` p values, `…_sha256` digests in
hexadecimal. *Canonical JSON* has sorted keys, no blanks, ASCII only. An empty cell is what could not be
estimated or does not apply.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(arguments: argparse.Namespace) -> int:
    """Print the page."""
    sys.stdout.write(dictionary())
    return 0


def dictionary() -> str:
    """The page as Markdown.

    Raises
    ------
    QfrError
        A field or a column has no meaning.
    """
    logged = ("Episode", "Turn", "Generation", "ToolCall", "Observation", "FaultTrace", "Acts")
    parts = [
        _INTRO,
        _section("Artifacts of a cell's run", "", _two("file", _FILES)),
        _section("episodes.jsonl.gz", "One `Episode` a line; the records inside it follow.", ""),
        *(_record(records, name, "###") for name in logged),
        _section("Values", "What the fields of a fixed set can be.", _values()),
        _section("Tools", "As prompts show them and `suite.json` holds them.", ""),
        *(_record(records, name, "###") for name in ("Tool", "Parameter")),
        _section("episodes.parquet", "", _columns(EPISODES, EPISODE_MEANINGS)),
        _section("calls.parquet", "One row per turn.", _columns(CALLS, CALL_MEANINGS)),
        _section("scores/POLICY@VERSION.parquet", "", _columns(SCORES, KEY_MEANINGS | _of(records, "Score"))),
        _section(LOOP_FILE, "One row per episode; `qfr rescore` adds it.", _columns(LOOPS, LOOP_MEANINGS)),
        _section("timing.jsonl", "One line per episode, in the order of playing.", _two("key", _TIMING)),
        _section("Params and tags of a cell's run", _FACTS, _facts()),
        _section(
            "Metrics work.…",
            "What a walk (a clean pass and its fault episodes) cost.",
            _two("metric", _work()),
        ),
        _section("results.csv, results.parquet", _RESULTS, _two("column", _of(results, "Result"))),
        _section("Kinds of rows", _KINDS, _two("kind", _kinds())),
        _section("provenance.csv", _PROVENANCE, ""),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


_FACTS = (
    f"{', '.join(PARAM_FIELDS)} are MLflow params, the others tags `qfr.NAME`; the configuration stands in "
    "params `config.GROUP.KEY` besides. Before a cell has run, what is measured is empty."
)
_RESULTS = (
    "Every number of a report is one row: `report.html`, `report.md`, the terminal, `results.json` (under "
    "`results`), `qfr contrast --json` (version 2) and the MLflow artifacts `qfr/results.parquet` and "
    "`qfr/results.json` show these rows under these names. `qfr report --explain ID` tells what a row is "
    "made of; `runs.csv` gives the MLflow run of each of its `cells`."
)
_KINDS = "In the order of the table."
_PROVENANCE = "A row per cell. Its columns are the params and tags above, `config` apart."


def meanings(module: ModuleType, name: str) -> dict[str, str]:
    """The comment lines under each field of a class of a module; empty where there are none."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    tree = next(one for one in ast.parse(source).body if isinstance(one, ast.ClassDef) and one.name == name)
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = " ".join(_comments(lines[node.end_lineno or node.lineno :]))
    return found


def _comments(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        text = line.strip()
        # A ruled line heads the next group of fields.
        if not text.startswith("# ") or text.startswith("# ---"):
            return
        yield text[2:]


def _of(module: ModuleType, name: str) -> dict[str, str]:
    """The meanings of a record's fields, in order."""
    found = meanings(module, name)
    if lacking := [field for field, text in found.items() if not text]:
        raise QfrError(
            f"{name}.{lacking[0]} has no line under it that says what it is", where=module.__name__
        )
    return found


def _record(module: ModuleType, name: str, level: str) -> str:
    kind = getattr(module, name)
    told = _of(module, name)
    rows = [(f"`{one.name}`", f"`{one.type}`", told[one.name]) for one in fields(kind)]
    return f"{level} {name}\n\n{inspect.getdoc(kind)}\n\n{_table(('field', 'type', 'meaning'), rows)}"


def _kinds() -> dict[str, str]:
    """The line under each kind of row."""
    lines = inspect.getsource(results.Kind).splitlines()
    tree = ast.parse(inspect.getsource(results.Kind)).body[0]
    nodes = tree.body if isinstance(tree, ast.ClassDef) else []
    names = [node for node in nodes if isinstance(node, ast.Assign)]
    found = {results.Kind[ast.unparse(n.targets[0])]: " ".join(_comments(lines[n.lineno :])) for n in names}
    return {str(kind): text for kind, text in found.items()}


def _values() -> str:
    kinds = (records.FaultKind, records.ParseKind, records.StopReason, records.Channel, records.Ending,
             records.Policy, records.Role, records.Kind)  # fmt: skip
    rows = [(f"`{kind.__name__}`", _listed(kind), _first_line(kind)) for kind in kinds]
    return _table(("type", "values", "meaning"), rows)


def _listed(kind: type[StrEnum]) -> str:
    return ", ".join(f"`{one}`" for one in kind)


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _facts() -> str:
    told = _of(facts, "CellFacts")
    rows = [(f"`{one.name}`", f"`{one.type}`", told[one.name]) for one in fields(facts.CellFacts)]
    return _table(("name", "type", "meaning"), rows)


def _columns(schema: pa.Schema, told: Mapping[str, str]) -> str:
    if lacking := set(schema.names).symmetric_difference(told):
        raise QfrError(f"column {sorted(lacking)[0]!r} has no meaning, or the meaning no column")
    rows = [
        (f"`{one.name}`", f"`{one.type}`" + (" or null" if one.nullable else ""), told[one.name])
        for one in schema
    ]
    return _table(("column", "type", "meaning"), rows)


def _work() -> dict[str, str]:
    told = {f"work.{name}": text for name, text in _of(facts, "Work").items()}
    return told | {"work.segment_ratio": inspect.getdoc(facts.Work.segment_ratio) or ""}


def _two(head: str, told: Mapping[str, str]) -> str:
    return _table((head, "meaning"), [(f"`{name}`", text) for name, text in told.items()])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def _section(title: str, text: str, table: str) -> str:
    return "\n\n".join(part for part in (f"## {title}", text, table) if part)
