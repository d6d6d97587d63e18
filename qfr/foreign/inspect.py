"""Inspect AI logs as lines of the neutral format, through Inspect's own reader.

    python -m qfr.foreign.inspect LOG [--scorer NAME] [--model NAME] [--preset NAME] > file.jsonl

The package inspect-ai (`pip install 'qfr[inspect]'`) may live in an environment of its own, where nothing
else of qfr is needed; `qfr import file.jsonl` reads the lines elsewhere.

A sample is one episode: its id the task, its epoch the trial, a success when its score is 1 (C, true).
A sample without a score, or one that ended in an error of the program, is left out, and counted. What a study
injected can stand in the sample's metadata under the key ``qfr``: its keys (fault, site, fired …) go into the
line as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qfr.errors import LogError, did_you_mean
from qfr.foreign.conversation import channel, classify
from qfr.foreign.jsonl import write_line
from qfr.records import Channel

_NO_TOOL = re.compile(r"Tool \S+ not found")
# Inspect's own text for a tool that the task does not have.
_HEAD = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"')
_TYPES = {
    "parsing": Channel.arguments, "unicode_decode": Channel.arguments, "file_not_found": Channel.entity,
    "is_a_directory": Channel.entity, "permission": Channel.policy, "approval": Channel.policy,
}  # fmt: skip
# Inspect's own kinds of error of a tool; the others are told by their text.


def is_inspect(path: str | Path) -> bool:
    """Whether a file is a log of Inspect AI: by its name, or a .json by how Inspect begins one."""
    if str(path).endswith(".eval"):
        return True
    if not str(path).endswith(".json") or not Path(path).is_file():
        return False
    with Path(path).open("rb") as file:
        return _HEAD.match(file.read(200)) is not None


@dataclass(frozen=True)
class Told:
    """What the log does not say."""

    scorer: str | None = None
    # Whose score decides; None where there is one.
    model: str | None = None
    preset: str | None = None


@dataclass(frozen=True)
class Converted:
    """A log as lines."""

    lines: tuple[str, ...]
    # Those of samples that are in no rate included; they say why.
    left_out: tuple[str, ...]
    # These in words.


def convert(path: str | Path, told: Told | None = None) -> Converted:
    """Read a log of Inspect AI.

    Raises
    ------
    LogError
        inspect-ai is not installed, the log cannot be read, or it has several scorers and none is named.
    """
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        raise LogError(
            "logs of Inspect AI need the package inspect-ai", where=str(path),
            hint="pip install 'qfr[inspect]', or in an environment of its own: "
            "python -m qfr.foreign.inspect LOG > file.jsonl",
        ) from None  # fmt: skip
    try:
        log = read_eval_log(str(path))
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().partition("\n")[0]
        raise LogError(f"no log of Inspect AI: {first}", where=str(path)) from None
    given = told or Told()
    lines: list[str] = []
    left_out: list[str] = []
    for sample in log.samples or ():
        value = _value(sample, given.scorer, str(path))
        if sample.error is not None or value is None:
            why = "no score" if sample.error is None else "ended in an error"
            left_out.append(f"{sample.id}, trial {sample.epoch - 1}: {why}")
            lines.append(write_line(_names(log, sample, given) | {"excluded": why}))
            continue
        lines.append(write_line(_line(log, sample, given, value)))
    if len(lines) == len(left_out):
        why = f": {log.error.message[:200]}" if log.error else ""
        hint = f"status of the log: {log.status}{why}"
        raise LogError("holds no scored sample", where=str(path), hint=hint)
    return Converted(tuple(lines), tuple(left_out))


def _line(log: Any, sample: Any, told: Told, success: bool) -> dict[str, object]:
    injected = (sample.metadata or {}).get("qfr")
    usage = sum(one.output_tokens or 0 for one in (sample.model_usage or {}).values())
    return (
        _names(log, sample, told)
        | {
            "family": str(log.eval.task),
            "success": success,
            "ending": "out_of_steps" if sample.limit is not None else "submitted",
            "calls": list(_calls(sample)),
            "completion_tokens": usage or None,
            "unseen": ["premature_give_up"],
        }
        | (injected if isinstance(injected, dict) else {})
    )


def _names(log: Any, sample: Any, told: Told) -> dict[str, object]:
    return {
        "model": told.model or str(log.eval.model),
        "preset": told.preset,
        "suite": str(log.eval.task),
        "executor": "inspect",
        "task": str(sample.id),
        "trial": sample.epoch - 1,
    }


def _scores(sample: Any) -> dict[str, Any]:
    """Values by scorer; a scorer of several values gives each as ``scorer.key``."""
    found: dict[str, Any] = {}
    for name, score in (sample.scores or {}).items():
        if isinstance(score.value, dict):
            found |= {f"{name}.{key}": value for key, value in score.value.items()}
        else:
            found[str(name)] = score.value
    return found


def _value(sample: Any, scorer: str | None, where: str) -> bool | None:
    """Whether the sample is a success; None without a score."""
    scores = _scores(sample)
    if not scores:
        return None
    if scorer is None and len(scores) > 1:
        raise LogError(
            f"the samples have several scores ({', '.join(map(str, scores))})",
            where=where,
            hint="--scorer NAME",
        )
    name = next(iter(scores)) if scorer is None else scorer
    if name not in scores:
        raise LogError(f"no scorer {name!r}{did_you_mean(name, list(scores))}", where=where)
    value = scores[name]
    if isinstance(value, str):
        words = {"C": True, "CORRECT": True, "TRUE": True, "YES": True, "1": True, "1.0": True}
        return None if value.upper() == "N" else words.get(value.upper(), False)
    if isinstance(value, bool | int | float):
        return bool(value == 1)
    raise LogError(
        f"the score {name!r} of sample {sample.id} is no single value",
        where=where,
        hint="--scorer NAME chooses another",
    )


def _calls(sample: Any) -> Iterator[dict[str, object]]:
    answers = {one.tool_call_id: one for one in sample.messages if one.role == "tool"}
    for message in sample.messages:
        text = message.text if message.role == "assistant" else ""
        for call in (message.tool_calls or ()) if message.role == "assistant" else ():
            answer = answers.get(call.id)
            said = "" if answer is None or answer.error is None else answer.error.message
            failed = Channel.form if call.parse_error else _failure(answer, said)
            yield {
                "tool": call.function,
                "arguments": _plain(call.arguments),
                "ok": failed is None,
                **({} if failed is None else {"channel": str(failed)}),
                "text": text,
                "result": said or ("" if answer is None else answer.text),
            }
            text = ""


def _failure(answer: Any, said: str) -> Channel | None:
    if answer is None or answer.error is None:
        return None
    if _NO_TOOL.match(said):
        return Channel.tool_name
    if answer.error.type in _TYPES:
        return _TYPES[answer.error.type]
    return channel(classify(said).kind) or Channel.policy


def _plain(arguments: object) -> object:
    """Arguments without what JSON does not hold."""
    return json.loads(json.dumps(arguments, default=str, allow_nan=False))


def main(words: list[str] | None = None) -> int:
    """Write the lines of logs to standard output; what is left out is told on standard error."""
    parser = argparse.ArgumentParser(prog="python -m qfr.foreign.inspect", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("log", nargs="+", help="a log of Inspect AI (.eval or .json)")
    parser.add_argument("--scorer", help="whose score decides, where there are several")
    parser.add_argument("--model", help="name of the model (left out = the log's)")
    parser.add_argument("--preset", help="its precision, such as BF16 or Q4_K_M")
    given = parser.parse_args(words)
    try:
        for path in given.log:
            found = convert(path, Told(given.scorer, given.model, given.preset))
            sys.stdout.writelines(found.lines)
            for one in found.left_out:
                print(f"in no rate: {one}", file=sys.stderr)
    except LogError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
