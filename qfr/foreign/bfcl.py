"""BFCL multi-turn results (package bfcl-eval): `*_result.json` with its `*_score.json`, both JSON Lines.

The result file holds an entry per task: what the model answered step by step, and in ``inference_log`` the
calls that were decoded from it and what the tools returned. The score file holds a head with the counts and
one entry per task that failed; all others of the result file passed. An entry that is an error of the server
(``Error during inference``) is no failure of the agent: it is left out, and counted.

Steps whose text could not be decoded end a turn, whether the text was a broken call or an answer to the user:
malformed calls are not observable.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qfr.errors import LogError
from qfr.foreign.conversation import channel, classify
from qfr.foreign.jsonl import UNSEEN, Lines, lines_from, write_line
from qfr.foreign.node import Node, parse, shown_name
from qfr.records import Channel

RESULT, SCORE = "_result.json", "_score.json"
_INFERENCE = "Error during inference"
_FAILED = re.compile(r"Error during execution:\s*")
_NO_TOOL = re.compile(r"name '\w+' is not defined|object has no attribute '\w+'$|No such function")


def is_bfcl(path: str | Path) -> bool:
    """Whether a file is a result file of BFCL, by its name."""
    return str(path).endswith(RESULT)


def score_path(result: Path) -> Path:
    """Where the scores are: beside the results, or below `score` where these are below `result`."""
    name = result.name.removesuffix(RESULT) + SCORE
    beside = result.with_name(name)
    parts = list(result.absolute().parent.parts)
    if not beside.exists() and "result" in parts:
        at = len(parts) - 1 - parts[::-1].index("result")
        return Path(*parts[:at], "score", *parts[at + 1 :], name)
    return beside


def read_bfcl(path: Path, model: str | None, preset: str | None) -> Lines:
    """Read a result file and its score file.

    Raises
    ------
    LogError
        One of them cannot be read, or they do not belong together; the message names file, line and key.
    """
    entries, failed, digest = *_scored(path), hashlib.sha256(path.read_bytes()).hexdigest()
    category = re.sub(r"^BFCL_v\d+_", "", path.name.removesuffix(RESULT))
    parts = path.absolute().parent.parts
    named = parts[parts.index("result") + 1] if "result" in parts[:-1] else path.absolute().parent.name
    names = {"model": model or named, "preset": preset, "suite": f"bfcl {category}", "executor": "bfcl"}
    written: list[tuple[int, bytes]] = []
    for at, node in entries:
        task = node.need("id").name()
        result = node.need("result")
        if isinstance(result.value, str):
            if not result.value.startswith(_INFERENCE):
                raise result.wrong("no result of a multi-turn task", "is this a single-turn category?")
            gone = names | {"task": task, "excluded": "the server failed"}
            written.append((at, write_line(gone).encode("ascii")))
            continue
        line = names | {
            "task": task,
            "family": category,
            "success": task not in failed,
            "calls": [_written(call) for call in _calls(node)],
            "completion_tokens": _tokens(node.get("output_token_count")),
            "unseen": list(UNSEEN),
        }
        written.append((at, write_line(line).encode("ascii")))
    return lines_from(written, shown_name(path.name), digest)


def _scored(path: Path) -> tuple[list[tuple[int, Node]], set[str]]:
    place = score_path(path)
    if not place.exists():
        raise LogError(
            "the scores of these results are not there", where=str(place),
            hint="run `bfcl evaluate`, or put the score file beside the result file",
        )  # fmt: skip
    entries = list(_read(path))
    ids = {node.need("id").name() for _, node in entries}
    (_, head), *failing = [*_read(place)] or [(0, Node(None, shown_name(place.name), ""))]
    if head.missing or head.get("total_count").missing:
        raise head.wrong("the first line holds no total_count", "is this a score file of bfcl-eval?")
    failed = {node.need("id").name() for _, node in failing}
    total, right = head.get("total_count").count(), head.need("correct_count").count()
    if total != len(ids) or total - right != len(failed) or failed - ids:
        raise head.wrong(
            f"these are the scores of other results: {total} tasks of which {total - right} failed, but "
            f"{len(ids)} results and {len(failed)} failures are listed",
            "evaluate the result file anew",
        )
    return entries, failed


def _read(path: Path) -> Iterator[tuple[int, Node]]:
    source = shown_name(path.name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LogError(f"cannot be read: {error}", where=str(path)) from None
    for at, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{source}, line {at}"
            yield at, Node(parse(line, where), where, "")


@dataclass(frozen=True)
class _Call:
    text: str
    # As Python: `cd(folder='a')`.
    result: str


def _calls(entry: Node) -> Iterator[_Call]:
    """Calls that were decoded, with what the tools returned, in order."""
    for turn in entry.get("inference_log").items():
        if not isinstance(turn.value, dict):
            continue
        keys = turn.keys()
        steps = [key for key in keys if re.fullmatch(r"step_\d+", key)]
        for key in sorted(steps, key=lambda name: int(name.removeprefix("step_"))):
            asked: list[str] = []
            answers: list[str] = []
            for message in turn.get(key).items():
                if message.get("role").text_or("") == "tool":
                    answers.append(_text(message.get("content")))
                elif not message.get("model_response_decoded").missing:
                    asked += [_text(call) for call in message.get("model_response_decoded").items()]
            for at, call in enumerate(asked):
                yield _Call(call, answers[at] if at < len(answers) else "")


def _text(node: Node) -> str:
    return node.value if isinstance(node.value, str) else json.dumps(node.value)


def _written(call: _Call) -> dict[str, object]:
    tool, arguments = _asked(call.text)
    failed = _failure(call.result)
    values: dict[str, object] = {"tool": tool, "arguments": arguments, "ok": failed is None}
    if failed is not None:
        values["channel"] = str(failed)
    return values | {"text": call.text, "result": call.result}


def _asked(text: str) -> tuple[str, dict[str, object]]:
    """Name and arguments of a call that is written as Python; nothing of it is run."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Call):
            return text[:60], {}
        given: dict[str, object] = {f"#{at}": ast.literal_eval(each) for at, each in enumerate(tree.args)}
        given |= {each.arg or "**": ast.literal_eval(each.value) for each in tree.keywords}
        json.dumps(given, allow_nan=False)
        return ast.unparse(tree.func), given
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return text.partition("(")[0][:60] or "?", {}


def _failure(result: str) -> Channel | None:
    """Which way a call failed, from what the tool returned; None for a good one."""
    found = _FAILED.match(result)
    said = result[found.end() :] if found else ""
    if not found:
        try:
            read = json.loads(result)
        except (ValueError, RecursionError):
            return None
        if not (isinstance(read, dict) and read.get("error")):
            return None
        said = str(read["error"])
    if _NO_TOOL.search(said):
        return Channel.tool_name
    return channel(classify(f"Error: {said}").kind)


def _tokens(node: Node) -> int | None:
    """Sum of a list of lists of numbers; None where the log has another form."""
    if not isinstance(node.value, list):
        return None
    flat = [each for turn in node.value if isinstance(turn, list) for each in turn]
    return int(sum(each for each in flat if isinstance(each, int | float)))
