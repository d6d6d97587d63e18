"""The neutral format: JSON Lines, one line an episode, with the fault that was injected in it.

Written by `qfr export --format jsonl`, read by `qfr import`; `docs/import.md` lists the keys. A line stands
for itself, so files can be cut and put together. What a line may leave out is what other programs do not log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from qfr.canonical import canonical
from qfr.errors import LogError, did_you_mean
from qfr.foreign.node import Node, parse, shown_name
from qfr.records import Channel, Ending, FaultKind, ParseKind

SUFFIXES = (".jsonl", ".ndjson")
KEYS = (
    "model", "preset", "prompt", "suite", "executor", "settings", "step_budget", "error_budget",
    "task", "family", "trial", "fault", "site", "site_tool", "site_arguments",
    "fired", "witnessed", "retried", "recovered", "dead_calls",
    "success", "ending", "answer", "gold", "calls", "completion_tokens",
    "unseen", "excluded",
)  # fmt: skip
_CALL_KEYS = ("tool", "arguments", "ok", "channel", "injected", "parse", "text", "result")
_LONGEST_LINE = 64 * 1024**2
NOT_STATED = "-"
UNSEEN = ("format", "premature_give_up")
# Events that other programs may not log: calls that nobody could read, and reports of failure without need.
_Word = TypeVar("_Word", FaultKind, Ending, Channel, ParseKind)


@dataclass(frozen=True)
class Call:
    """One call of the agent."""

    tool: str | None
    # None: the turn held no call that could be read.
    arguments: str
    # Canonical JSON.
    ok: bool
    channel: Channel | None
    injected: bool
    parse: ParseKind
    text: str
    # What the agent wrote.
    result: str
    # What it was answered.


@dataclass(frozen=True)
class Setting:
    """What names a cell but its fault."""

    model: str
    preset: str
    prompt: str
    suite: str
    executor: str
    settings: tuple[tuple[str, str], ...]
    # Whatever else tells it from others, by key.
    step_budget: int
    # 0: not stated.
    error_budget: int | None


@dataclass(frozen=True)
class Happened:
    """The life of a fault: the index of the call of each event, None where it did not happen."""

    site: int
    tool: str
    arguments: str
    fired: int | None
    witnessed: int | None
    retried: int | None
    recovered: int | None
    dead_calls: int
    # Calls that the fault answered.


@dataclass(frozen=True)
class Line:
    """One episode."""

    where: str
    # File and line, for messages.
    setting: Setting
    task: str
    family: str
    trial: int
    fault: FaultKind
    happened: Happened | None
    # None exactly when nothing was injected.
    tolerant: bool
    strict: bool
    # Success by scoring policy.
    ending: Ending
    answer: str | None
    gold: str | None
    calls: tuple[Call, ...] | None
    # None: the log does not hold them.
    completion_tokens: int | None
    unseen: tuple[str, ...]
    # Of `UNSEEN`: what the log cannot show, so that a count of 0 says nothing.


@dataclass(frozen=True)
class LeftOut:
    """A simulation that is in no rate."""

    setting: Setting
    task: str
    trial: int
    reason: str


@dataclass(frozen=True)
class Lines:
    """A file of them."""

    source: str
    sha256: str
    lines: tuple[Line, ...]
    left_out: tuple[LeftOut, ...] = ()
    # What the program of the file did not score.


def is_jsonl(path: str | Path) -> bool:
    """Whether a file is of the neutral format, by its name."""
    return str(path).lower().endswith(SUFFIXES)


def read_lines(path: Path) -> Lines:
    """Read a file of the neutral format.

    Raises
    ------
    LogError
        It cannot be read, or a line is wrong; the message names the line and the key.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for raw in file:
                digest.update(raw)
            file.seek(0)
            return lines_from(enumerate(file, 1), shown_name(path.name), digest.hexdigest())
    except OSError as error:
        raise LogError(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def lines_from(numbered: Iterable[tuple[int, bytes]], source: str, sha256: str) -> Lines:
    """Read lines with their numbers. Raises `LogError` as `read_lines`."""
    found: list[Line] = []
    left_out: list[LeftOut] = []
    for at, raw in numbered:
        where = f"{source}, line {at}"
        if len(raw) > _LONGEST_LINE:
            raise LogError("the line is too long for an episode", where=where)
        if raw.strip():
            node = _parsed(raw, where)
            if node.get("excluded").missing:
                found.append(_line(node))
            else:
                left_out.append(_left_out(node))
    if not found:
        what = "every episode is excluded" if left_out else "holds no episode"
        raise LogError(what, where=source, hint="one JSON object per line, one line an episode")
    return Lines(source, sha256, tuple(found), tuple(left_out))


def _left_out(node: Node) -> LeftOut:
    _known(node, KEYS)
    if not node.get("success").missing:
        raise node.get("success").wrong("an excluded episode has no success", "it is in no rate")
    reason = _filled(node.get("excluded"))
    return LeftOut(_setting(node), _filled(node.need("task")), node.get("trial").count_or(0), reason)


def _parsed(raw: bytes, where: str) -> Node:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise LogError("not UTF-8 text", where=where) from None
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise LogError(
            f"no JSON: {error.msg}", where=f"{where}, column {error.colno}", hint="one JSON object per line"
        ) from None
    except RecursionError:
        raise LogError("nested too deeply", where=where) from None
    return Node(parse(text, where), where, "")


def _line(node: Node) -> Line:
    _known(node, KEYS)
    fault = _choice(node.get("fault"), FaultKind, FaultKind.none)
    success = node.need("success")
    if isinstance(success.value, dict):
        _known(success, ("tolerant", "strict"))
        tolerant = success.need("tolerant").flag_or(False)
        strict = success.get("strict").flag_or(tolerant)
    else:
        tolerant = strict = success.flag_or(False)
    if strict and not tolerant:
        raise success.wrong("a strict success is a tolerant one too", "see docs/import.md, success")
    calls = None if node.get("calls").missing else tuple(map(_call, node.get("calls").items()))
    return Line(
        where=node.source,
        setting=_setting(node),
        task=_filled(node.need("task")),
        family=node.get("family").text_or(""),
        trial=node.get("trial").count_or(0),
        fault=fault,
        happened=None if fault is FaultKind.none else _happened(node, calls),
        tolerant=tolerant,
        strict=strict,
        ending=_choice(node.get("ending"), Ending, Ending.submitted),
        answer=None if node.get("answer").missing else canonical(node.get("answer").value),
        gold=None if node.get("gold").missing else node.get("gold").text(),
        calls=calls,
        completion_tokens=None
        if node.get("completion_tokens").missing
        else node.get("completion_tokens").count(10**9),
        unseen=tuple(_word(each, UNSEEN) for each in node.get("unseen").items()),
    )


def _setting(node: Node) -> Setting:
    settings = node.get("settings")
    names = settings.keys()
    given = {key: settings.get(key) for key in names}
    executor = node.get("executor").text_or("") or "external"
    if executor == "foreign":
        raise node.get("executor").wrong("the name is taken: qfr calls logs without faults so")
    return Setting(
        model=_filled(node.need("model")),
        preset=node.get("preset").text_or(NOT_STATED) or NOT_STATED,
        prompt=node.get("prompt").text_or(NOT_STATED) or NOT_STATED,
        suite=node.get("suite").text_or("") or "unknown",
        executor=executor,
        settings=tuple(sorted((key, value.text()) for key, value in given.items())),
        step_budget=node.get("step_budget").count_or(0),
        error_budget=None if node.get("error_budget").missing else node.get("error_budget").count(),
    )


def _happened(node: Node, calls: tuple[Call, ...] | None) -> Happened:
    names = node.keys()
    if "fired" not in names:
        raise node.wrong("the key 'fired' is missing", "an episode with a fault says whether it fired")
    fired = _event(node.get("fired"), calls)
    rest = {key: _event(node.get(key), calls) for key in ("witnessed", "retried", "recovered")}
    if fired is None and any(value is not None for value in rest.values()):
        raise node.get("fired").wrong("a fault that never fired cannot be witnessed, retried or recovered")
    arguments = node.get("site_arguments")
    return Happened(
        site=node.get("site").count_or(0),
        tool=node.get("site_tool").text_or(""),
        arguments=canonical({} if arguments.missing else arguments.value),
        fired=fired,
        witnessed=rest["witnessed"],
        retried=rest["retried"],
        recovered=rest["recovered"],
        dead_calls=node.get("dead_calls").count_or(0 if fired is None else 1),
    )


def _event(node: Node, calls: tuple[Call, ...] | None) -> int | None:
    """Index of a call; true where it is not known which one, then the first."""
    if node.missing or node.value is False:
        return None
    if node.value is True:
        return 0
    index = node.count()
    if calls is not None and index >= len(calls):
        raise node.wrong(f"call {index} is not in the line, which holds {len(calls)} calls (from 0)")
    return index


def _call(node: Node) -> Call:
    _known(node, _CALL_KEYS)
    tool = node.get("tool")
    arguments = node.get("arguments")
    injected = node.get("injected").flag_or(False)
    channel = None if node.get("channel").missing else _choice(node.get("channel"), Channel, Channel.policy)
    ok = node.get("ok").flag_or(channel is None)
    if ok and channel is not None:
        raise node.get("channel").wrong("a call that succeeded has no channel of failure")
    if not ok and channel is None and not injected:
        raise node.wrong(
            "a call that failed names its channel, or says that the fault answered it",
            f"channel: {', '.join(Channel)}; or injected: true",
        )
    return Call(
        tool=None if tool.missing else tool.text(),
        arguments=canonical({} if arguments.missing else arguments.value),
        ok=ok,
        channel=channel,
        injected=injected,
        parse=_choice(node.get("parse"), ParseKind, ParseKind.strict),
        text=node.get("text").text_or(""),
        result=node.get("result").text_or(""),
    )


def _filled(node: Node) -> str:
    text = node.name()
    if not text.strip():
        raise node.wrong("an empty name")
    return text


def _known(node: Node, keys: tuple[str, ...]) -> None:
    names = node.keys()
    for key in names:
        if key not in keys:
            raise node.wrong(
                f"no key {key[:40]!r}{did_you_mean(key, keys)}",
                f"known are {', '.join(keys)}; what else tells cells apart goes into settings",
            )


def _word(node: Node, known: tuple[str, ...]) -> str:
    word = node.text()
    if word not in known:
        raise node.wrong(
            f"{word[:40]!r} is none of the known words{did_you_mean(word, known)}",
            f"one of {', '.join(known)}",
        )
    return word


def _choice(node: Node, kind: type[_Word], default: _Word) -> _Word:
    if node.missing:
        return default
    return kind(_word(node, tuple(str(each) for each in kind)))


def write_line(values: Mapping[str, object]) -> str:
    """A line of a file, its keys in the order of the document; what is None is left out."""
    kept = {key: values[key] for key in KEYS if values.get(key) is not None}
    return json.dumps(kept, ensure_ascii=True, allow_nan=False) + "\n"


def clean_setting(setting: Setting) -> Setting:
    """The setting of the clean pass: what describes a fault is none of it."""
    kept = tuple((key, value) for key, value in setting.settings if not key.startswith("fault."))
    return replace(setting, settings=kept)
