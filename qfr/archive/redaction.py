"""What must not leave the machine: absolute paths, names of machines and users, addresses, secrets.

Logs, tables, prompts and suites are never touched (their digests are evidence); they hold none of it. What is
redacted is what a run says about its surroundings: configuration, failure messages, times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

import yaml

from qfr.canonical import canonical
from qfr.errors import LogError
from qfr.facts import CellFacts
from qfr.tracking.environment import redact

# Keys of the configuration that name a place.
_PLACES = (
    "model.path", "model.base", "model.folder", "prompt.file", "quant.imatrix", "tracking.root", "report.out",
    "registration.hypotheses", "registration.use",
)  # fmt: skip
_ADDRESSES = ("tracking.uri",)
# Texts that a user typed.
_FREE = ("registration.title", "registration.deviation")

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://+(?:[^\s'\"<>]*[^\s'\"<>.,;:()])?")
_QUOTED = re.compile(r"(?<=')(?:~?/|[A-Za-z]:[\\/])[^'\n]*(?=')|(?<=\")(?:~?/|[A-Za-z]:[\\/])[^\"\n]*(?=\")")
_REST = r"[^\s'\"<>|,;:()\[\]{}]"
_PATH = re.compile(rf"(?<![\w.<…])(?:~?/|[A-Za-z]:[\\/]){_REST}+")
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_TIMES = ("task", "fault", "site", "trial", "seconds", "ended")
_SHORTEST = 3


@dataclass(frozen=True)
class Redaction:
    """How one sweep is redacted."""

    machines: Mapping[str, str]
    # Host name → machine-1, machine-2 …, in the order of the runs: a reader still sees which runs share one.
    folders: tuple[str, ...]
    # Absolute folders of this machine, longest first.

    @classmethod
    def of(cls, hosts: Iterable[str], folders: Sequence[Path]) -> Redaction:
        """For runs of these hosts, oldest first, in a store that stands in these folders."""
        known = [host for host in dict.fromkeys(hosts) if host]
        texts = {str(folder) for folder in folders if len(folder.parts) > 1}
        return cls(
            {host: f"machine-{number}" for number, host in enumerate(known, 1)},
            tuple(sorted(texts, key=lambda text: (-len(text), text))),
        )

    def facts(self, facts: CellFacts) -> CellFacts:
        """A cell's facts without host and places."""
        config = canonical(self.config(json.loads(facts.config))) if facts.config else ""
        host = self.machines.get(facts.host, facts.host)
        return replace(facts, host=host, config=config, deviation=self.text(facts.deviation))

    def config(self, value: object, key: str = "") -> object:
        """A configuration without places; of a path its last part stays, which is what ids are made of."""
        if isinstance(value, dict):
            return {name: self.config(item, f"{key}.{name}" if key else name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.config(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key in _ADDRESSES:
            return "(address)"
        if key in _PLACES:
            return value if _is_inside(value) else PurePath(value.replace("\\", "/")).name or "(path)"
        # Other values are settings, and stay what they are unless they name this machine.
        return self.text(value) if key in _FREE or any(name in value for name in self.folders) else value

    def config_yaml(self, data: bytes) -> bytes:
        """A run's `config.yaml` without places.

        Raises
        ------
        LogError
            It is no YAML.
        """
        try:
            value = yaml.safe_load(data.decode("utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise LogError(f"config.yaml cannot be read ({str(error).partition(chr(10))[0]})") from None
        return str(yaml.safe_dump(self.config(value), sort_keys=False, allow_unicode=True)).encode("utf-8")

    def timing(self, data: bytes) -> bytes:
        """`timing.jsonl` with its times alone: process ids and what else came in are dropped."""
        lines: list[str] = []
        for line in data.splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                lines.append(canonical({key: value[key] for key in _TIMES if key in value}))
        return "".join(f"{line}\n" for line in lines).encode("ascii")

    def text(self, text: str) -> str:
        """A message without paths, addresses, machines and secrets."""
        text = redact(text)
        for folder in self.folders:
            text = re.sub(re.escape(folder) + rf"(?![\w.-])({_REST}*)", _last_below, text)
        text = _QUOTED.sub(_last, text)
        text = _URL.sub(_local_name, text)
        text = _PATH.sub(_last, text)
        text = _MAIL.sub("(name)", text)
        for host, machine in self.machines.items():
            if len(host) >= _SHORTEST:
                text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", machine, text)
        return text

    def names_machine(self, text: str) -> bool:
        """Whether a text that must not change names a folder or a machine."""
        hosts = [host for host in self.machines if len(host) >= _SHORTEST]
        return any(name in text for name in (*self.folders, *hosts))


def _is_inside(path: str) -> bool:
    """A relative path that does not climb: a place in the project, not on the machine."""
    pure = PurePath(path.replace("\\", "/"))
    away = pure.is_absolute() or ".." in pure.parts or path.startswith("~") or re.match("[A-Za-z]:", path)
    return not away


def _last_below(found: re.Match[str]) -> str:
    last = found[1].rstrip("/").rpartition("/")[2]
    return f"…/{last}" if last else "…"


def _last(found: re.Match[str]) -> str:
    parts = [part for part in re.split(r"[/\\]+", found[0]) if part]
    return f"…/{parts[-1]}" if len(parts) > 1 else "…"


def _local_name(found: re.Match[str]) -> str:
    scheme, _, rest = found[0].partition("://")
    if scheme in ("file", "sqlite"):
        return f"{scheme}:…/{re.split('[/]+', rest)[-1]}"
    return "(address)"
