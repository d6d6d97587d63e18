"""What may be compared: a cell's scope, and the one way in which cells are grouped, joined and paired.

A cell's *scope* is the flat map of every key that is part of its identity, under the key's name on the
command line (``engine.type_k``), and of what was measured where it ran (``build.llama_commit``).
The keys come from the configuration's own marks, so a key that is added tomorrow is in the scope too.

An *axis* owns some keys: they may differ between the cells of a comparison along that axis, and all others
must agree. `group` sorts cells so, `differ` names the keys in which two cells differ, and `labels` says each
group by what tells it from the others. Nothing else in qfr decides which cells belong together.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import PurePath
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from qfr.clauses import BASES, Clause, is_base, read_variant, states
from qfr.config import CellConfig
from qfr.errors import TableError, did_you_mean
from qfr.facts import CellFacts
from qfr.identity import LATER_KEYS, irrelevant
from qfr.records import FaultKind

T = TypeVar("T")

#: The keys that each axis owns, as patterns. A preset is its file; a model brings its template along; the
#: context's length follows from prompt, suite and executor.
AXES: Mapping[str, tuple[str, ...]] = {
    "quant": ("quant.*", "model.source.*", "file.*", "log.*", "engine.server.*"),
    "model": ("model.*", "quant.imatrix", "file.*", "log.*", "engine.server.*", "template.*", "measured.*"),
    "prompt": ("prompt.*", "measured.n_ctx"),
    "fault": ("fault.*",),
    "executor": ("executor.*", "measured.n_ctx", "version.schema"),
    "suite": ("suite.*", "measured.n_ctx"),
    "kv": ("engine.type_k", "engine.type_v", "engine.flash_attn"),
    "build": ("build.*",),
    "trial": ("trial",),
}
#: Axes that a contrast can vary; any single key can be varied too.
VARIES = ("quant", "prompt", "model", "fault", "executor", "kv", "build", "trial")
#: The name that cells go by along an axis.
NAMES: Mapping[str, str] = {
    "model": "model.name",
    "quant": "quant.preset",
    "prompt": "prompt.name",
    "fault": "fault.kind",
    "executor": "executor.kind",
    "suite": "suite.name",
}
_OF_A_SUITE = tuple(f"suite.{name}" for name in ("world", "version", "families", "seed", "grid", "options*"))
# Keys that follow from another one: they are told only where that one tells nothing.
_FOLLOWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("model.name", ("model.source.*", "file.*", "template.*", "measured.*", "engine.server.*", "log.*")),
    ("quant.preset", ("quant.*", "model.source.*", "file.*", "engine.server.*", "log.*")),
    ("prompt.name", ("prompt.*", "measured.*")),
    ("prompt.base", tuple(f"prompt.{clause.value}" for clause in Clause)),
    ("fault.kind", ("fault.*",)),
    ("suite.name", (*_OF_A_SUITE, "suite.domain", "suite.sha256", "measured.*", "log.*")),
    ("suite.*", ("suite.sha256", "measured.*")),
    ("executor.*", ("measured.*", "version.schema")),
    ("fault.*", ("fault.sha256",)),
    ("build.llama_commit", ("build.*",)),
    ("engine.kind", ("build.library_version", "executor.agent", "executor.user_model")),
    ("build.library_version", ("build.library_sha256", "build.release")),
    ("log.source", ("log.id",)),
    ("model.source.*", ("file.*",)),
    ("file.imatrix", ("file.tensor_types", "file.sha256")),
    ("file.tensor_types", ("file.sha256",)),
)  # fmt: skip
# What a prompt is made of besides its base.
_PROMPT_PARTS = frozenset(
    {*(f"prompt.{clause.value}" for clause in Clause), "prompt.rewrites", "prompt.rewrite_seed"}
)
# Values that no reader can tell apart: a label counts them instead.
_HASHES = ("*.sha256", "build.library_sha256", "log.id", "model.source.sha256")


class Scope(Mapping[str, str]):
    """Key → value as a text; immutable and hashable."""

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(sorted(values.items()))
        self._hash = hash(tuple(self._values.items()))

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and self._values == other._values

    def __repr__(self) -> str:
        return f"Scope({self._values!r})"

    def fixed(self, free: frozenset[str]) -> tuple[tuple[str, str], ...]:
        """Keys and values that are not free along the given axes or keys."""
        return tuple((key, value) for key, value in self._values.items() if not _owns(free, key))

    def told(self, key: str) -> str:
        """A key's value for a reader; a key that does not apply is ``unset``."""
        return self._values.get(key, "") or "unset"


#: Of what says nothing of itself.
UNKNOWN = Scope({})


@dataclass(frozen=True)
class Group(Generic[T]):
    """Things that differ in nothing but the free keys."""

    members: tuple[T, ...]
    fixed: Scope = field(repr=False)
    # What all members share.
    label: str = ""
    # What tells the group from the others of the same names; empty where there is no other.


def scope_of(facts: CellFacts) -> Scope:
    """Return the scope of a cell from what its run says about itself."""
    clean = facts.fault == FaultKind.none
    values = dict(_asked(facts.config))
    named = {
        "model.name": facts.model,
        "quant.preset": facts.quant,
        "prompt.name": facts.prompt,
        "fault.kind": facts.fault,
        "suite.name": facts.suite,
        "suite.step_budget": str(facts.step_budget),
        "suite.error_budget": str(facts.error_budget),
        "executor.kind": facts.executor,
        "trial": str(facts.trial),
        "engine.kind": facts.engine,
        "prompt.sha256": _prompt_digest(values, facts.prompt_sha256),
        "suite.sha256": facts.suite_sha256,
        "template.sha256": facts.template_sha256,
        "file.sha256": facts.model_sha256,
        "file.imatrix": facts.imatrix,
        "file.tensor_types": facts.tensor_types,
        "build.llama_commit": facts.llama_commit[:9],
        "build.library_version": facts.library_version,
        "build.library_sha256": facts.library_sha256,
        "device.name": facts.device,
        "measured.n_ctx": str(facts.n_ctx),
        "measured.offloaded_layers": str(facts.offloaded_layers),
        "version.schema": str(facts.schema_version),
        "version.identity": str(facts.identity_version),
        "version.scorer": str(facts.scorer_version),
    }
    if facts.engine != "openai":
        named |= {
            "engine.n_batch": str(facts.n_batch),
            "engine.n_threads": str(facts.n_threads),
            "engine.n_threads_batch": str(facts.n_threads_batch),
            "engine.streams": str(facts.streams),
        }
    if not clean:
        named["suite.gate"] = facts.gate
    # A record without the text says it by a digest only.
    if "fault.message" not in values and not clean:
        named["fault.sha256"] = facts.fault_sha256
    if "log.source" in values:
        # A log that states no budget has none; its facts say 0.
        stated = {key: values.get(key, "") for key in ("suite.step_budget", "suite.error_budget")}
        named |= {"log.id": facts.cell_id} | stated
    return Scope(values | {key: value for key, value in named.items() if value})


def _prompt_digest(values: Mapping[str, str], read: str) -> str:
    """A prompt's digest: of its file where the executor decides what is appended to it."""
    return values.get("prompt.sha256", read) if "prompt.bare" in values else read


def scope_of_design(design: Mapping[str, object], named: Mapping[str, str]) -> Scope:
    """Return the scope of a cell that is only planned, from what its design_id is the hash of.

    Parameters
    ----------
    design : mapping
        As `qfr.identity.design_fields` gives it.
    named : mapping
        The cell's names, by key.
    """
    found: dict[str, object] = {}
    for key, value in design.items():
        if key == "fields" and isinstance(value, Mapping):
            found |= value
        elif key in ("fault", "source") and isinstance(value, Mapping):
            prefix = "model.source" if key == "source" else key
            found |= {
                f"{prefix}.{name}": item for name, item in value.items() if name not in ("name", "preset")
            }
        else:
            found[_DESIGN.get(key, f"version.{key}")] = value
    found |= _clauses_of_name(named.get("prompt.name", ""), str(design.get("prompt_sha256", "")))
    return Scope({key: _text(value) for key, value in found.items() if value is not None} | dict(named))


_DESIGN = {
    "prompt_sha256": "prompt.sha256",
    "suite_sha256": "suite.sha256",
    "llama_commit": "build.llama_commit",
}


def differ(a: Scope, b: Scope, free: Iterable[str] = ()) -> tuple[str, ...]:
    """Name the keys in which two scopes differ, those that are free left out; keys that follow come last."""
    given = frozenset(free)
    keys = (key for key in {**a, **b} if a.get(key) != b.get(key) and not _owns(given, key))
    return tuple(sorted(keys, key=_rank))


def told(a: Scope, b: Scope, free: Iterable[str] = ()) -> str:
    """Say what differs: ``engine.type_k differs (f16 / q8_0)``; empty where nothing does."""
    keys = differ(a, b, free)
    wanted = _telling((a, b), keys)
    return "; ".join(
        f"{key} differs" + ("" if _is_hash(key) else f" ({_short(a.told(key))} / {_short(b.told(key))})")
        for key in keys
        if key in NAMES.values() or a in wanted[key]
    )


def group(
    things: Iterable[T],
    free: Iterable[str],
    *,
    of: Callable[[T], Scope],
    also: Callable[[T], Hashable] = lambda _thing: None,
) -> tuple[Group[T], ...]:
    """Sort things into groups that differ in nothing but the free axes or keys.

    Parameters
    ----------
    things : iterable
    free : iterable of str
        Axes (`AXES`) or single keys.
    of : callable
        A thing's scope.
    also : callable
        Something else that the members of a group share, such as the scoring policy.

    Returns
    -------
    tuple of Group
        In the order of their first members.

    Raises
    ------
    TableError
        A free name is neither an axis nor a key.
    """
    given = frozenset(free)
    found: dict[Hashable, list[T]] = defaultdict(list)
    for thing in things:
        found[of(thing).fixed(given), also(thing)].append(thing)
    fixed = {at: Scope(dict(of(members[0]).fixed(given))) for at, members in found.items()}
    namesakes: dict[tuple[str, ...], dict[Scope, None]] = defaultdict(dict)
    for one in fixed.values():
        namesakes[_names(one)][one] = None
    texts = {
        one: text
        for scopes in namesakes.values()
        for one, text in zip(scopes, labels(tuple(scopes)), strict=True)
    }
    return tuple(Group(tuple(members), fixed[at], texts[fixed[at]]) for at, members in found.items())


def labels(scopes: Sequence[Scope], *, names: bool = False) -> tuple[str, ...]:
    """Say each scope by what tells it from the others, never by a hash.

    Parameters
    ----------
    scopes : sequence of Scope
    names : bool
        Tell the names of model, preset, prompt, fault, executor and suite too; otherwise a reader sees them
        already.

    Returns
    -------
    tuple of str
        Such as ``engine.type_k=q8_0``; empty where the names say it all.
    """
    distinct = list(dict.fromkeys(scopes))
    differing = [key for key in _keys(distinct) if len({one.get(key) for one in distinct}) > 1]
    parts: dict[Scope, list[str]] = {one: [] for one in distinct}
    for key, members in _telling(distinct, differing).items():
        values = sorted({one.get(key, "") for one in members})
        for one in members:
            place = f"{key.rpartition('.')[0]} {values.index(one.get(key, '')) + 1} of {len(values)}"
            value = _short(one.told(key))
            # The name of a file says itself what it is.
            parts[one].append(place if _is_hash(key) else value if key == "log.source" else f"{key}={value}")
    shown = [key for key in NAMES.values() if key in differing] if names else []
    texts = {one: ", ".join([*(one.told(key) for key in shown), *parts[one]]) for one in distinct}
    return tuple(texts[one] for one in scopes)


def varying(scopes: Iterable[Scope]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return every key that has several values among the scopes, with the values; digests are counted.

    Keys that follow from another one (a file's digest from its preset) are left out.
    """
    distinct = list(dict.fromkeys(scopes))
    differing = [key for key in _keys(distinct) if len({one.get(key) for one in distinct}) > 1]
    telling = _telling(distinct, differing)
    found = []
    for key in differing:
        if key in NAMES.values() or telling[key]:
            values = tuple(dict.fromkeys(one.told(key) for one in distinct))
            found.append(
                (key, (f"{len(values)} different",) if _is_hash(key) else tuple(map(_short, values)))
            )
    return tuple(found)


def check_axis(name: str, keys: Iterable[str] = ()) -> str:
    """Return the name of an axis or of a key of the identity as it is.

    Raises
    ------
    TableError
        It is neither, nor one of the further keys.
    """
    known = (*VARIES, *identity_keys(), *keys)
    if name not in known:
        raise TableError(
            f"{name!r} is neither an axis nor a key of a cell" + did_you_mean(name, known),
            hint=f"axes are {', '.join(VARIES)}; keys are those of the configuration, such as engine.type_k",
        )
    return name


@cache
def identity_keys() -> tuple[str, ...]:
    """Every key that the configuration marks as part of a cell's identity, in its order."""
    return tuple(key for key, _ in _marked(CellConfig, ""))


def value_of(scope: Scope, axis: str) -> str:
    """Return what a scope says along an axis or key: the level that a contrast shows.

    An axis with a name shows it; the cache shows both its types; a build its commit.
    """
    if axis in NAMES:
        return scope.told(NAMES[axis])
    if axis == "kv":
        flash = ", flash attention" if scope.get("engine.flash_attn") == "true" else ""
        return f"{scope.told('engine.type_k')}/{scope.told('engine.type_v')}{flash}"
    if axis == "build":
        return scope.told("build.llama_commit")
    return scope.told(axis)


@lru_cache(maxsize=4096)
def _asked(config: str) -> Mapping[str, str]:
    """The identity keys of a recorded configuration, as texts; nothing for a record without them."""
    try:
        raw = json.loads(config)
    except ValueError:
        return {}
    if not isinstance(raw, dict):
        return {}
    if isinstance(raw.get("foreign"), dict):
        return _foreign(raw["foreign"])
    if isinstance(external := raw.get("external"), dict) and isinstance(external.get("settings"), dict):
        return {str(key): _text(value) for key, value in external["settings"].items()}
    given: dict[str, object] = {}
    for key, value in _values(CellConfig, raw, ""):
        if not key.startswith("model.") and not (key in LATER_KEYS and LATER_KEYS[key] == value):
            given[key] = value
    given |= _source(raw) | _clauses(raw)
    engine = str(_at(raw, "engine", "kind") or "")
    fault = str(_at(raw, "fault", "kind") or FaultKind.none)
    server = _at(raw, "engine", "server")
    if engine == "openai" and isinstance(server, dict):
        given["engine.server.name"] = server.get("name") or server.get("base_url") or ""
    return {
        key: _text(value)
        for key, value in given.items()
        if value is not None and not irrelevant(key, engine, fault)
    }


def _foreign(about: Mapping[str, object]) -> Mapping[str, str]:
    """What an imported log says of its setting."""
    names = {
        "kind": "engine.kind",
        "domain": "suite.domain",
        "agent": "executor.agent",
        "user_model": "executor.user_model",
        "release": "build.release",
        "source": "log.source",
        "max_steps": "suite.step_budget",
        "max_errors": "suite.error_budget",
    }
    return {key: _text(about[name]) for name, key in names.items() if about.get(name) is not None}


def _clauses(raw: Mapping[str, object]) -> dict[str, object]:
    """The base of a prompt and which clauses it has, so that a prompt stands beside its variants."""
    prompt = raw.get("prompt")
    if not isinstance(prompt, dict) or not isinstance(prompt.get("name"), str):
        return {}
    base, digest = str(prompt.get("base") or prompt["name"]), prompt.get("sha256")
    switches = {clause: prompt[clause] for clause in Clause if isinstance(prompt.get(clause), bool)}
    return _clause_keys(base, is_base(base, digest if isinstance(digest, str) else None), switches)


def _clauses_of_name(name: str, digest: str) -> dict[str, object]:
    """The same of a prompt that is only planned: its name says how it was made."""
    base, switches = read_variant(name)
    return _clause_keys(base, is_base(base, digest) or bool(switches and base in BASES), switches)


def _clause_keys(base: str, known: bool, switches: Mapping[Clause, bool]) -> dict[str, object]:
    found = states(base, known, switches)
    return {"prompt.base": base} | {f"prompt.{clause.value}": state for clause, state in found.items()}


def _source(raw: Mapping[str, object]) -> dict[str, object]:
    """Where the model comes from, as `qfr.identity.declared_source` has it: only what this preset uses."""
    model, preset = raw.get("model"), str(_at(raw, "quant", "preset") or "")
    found: dict[str, object] = {"quant.imatrix": _at(raw, "quant", "imatrix") is not None or None}
    if not isinstance(model, dict):
        return found
    found["model.name"] = model.get("name")
    # A later key of the model is told as it is.
    plain = {name for name in model if f"model.{name}" in _model_keys() and name not in _SOURCE}
    found |= {
        f"model.{name}": model[name] for name in plain if LATER_KEYS.get(f"model.{name}", "-") != model[name]
    }
    for name in ("path", "base"):
        if isinstance(model.get(name), str):
            return found | {f"model.source.{name}": PurePath(str(model[name])).name}
    files = model.get("files")
    chosen = preset if isinstance(files, dict) and preset in files else model.get("derive_from")
    file = files.get(chosen) if isinstance(files, dict) and chosen is not None else None
    if isinstance(file, dict):
        found["model.source.file"] = file.get("filename")
        found["model.source.sha256"] = file.get("sha256")
        if not file.get("sha256"):
            found |= {
                "model.source.repo_id": model.get("repo_id"),
                "model.source.revision": model.get("revision"),
            }
    if chosen != preset:
        found["model.source.derived_from"] = chosen
    return found


_SOURCE = frozenset(
    {"path", "base", "folder", "package", "repo_id", "revision", "files", "derive_from", "allow_requantize"}
)


@cache
def _model_keys() -> frozenset[str]:
    return frozenset(key for key in identity_keys() if key.startswith("model."))


def _at(raw: Mapping[str, object], *names: str) -> object:
    value: object = raw
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=True, sort_keys=True)


def _names(scope: Scope) -> tuple[str, ...]:
    return tuple(scope.get(key, "") for key in NAMES.values())


def _values(kind: Any, raw: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, object]]:
    """The identity fields of a record that a configuration holds; keys that it lacks are left out."""
    for name, inner in _schema(kind):
        if name in raw:
            value = raw[name]
            if inner is not None and isinstance(value, dict):
                yield from _values(inner, value, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", value


def _marked(kind: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    for name, inner in _schema(kind):
        if inner is None:
            yield f"{prefix}{name}", kind
        else:
            yield from _marked(inner, f"{prefix}{name}.")


@cache
def _schema(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Names of the identity fields of a dataclass, with the dataclass that a field holds (or None)."""
    hints = get_type_hints(kind)
    found = []
    for one in dataclasses.fields(kind):
        if one.metadata.get("identity"):
            hint = hints[one.name]
            options = get_args(hint) if get_origin(hint) is UnionType else (hint,)
            inner = next((option for option in options if dataclasses.is_dataclass(option)), None)
            found.append((one.name, inner))
    return tuple(found)


@lru_cache(maxsize=65_536)
def _owns(free: frozenset[str], key: str) -> bool:
    """Whether one of the axes or keys owns a key. A key that budgets a context frees the context's length."""
    for name in free:
        patterns = AXES.get(name, (name,))
        if any(fnmatchcase(key, pattern) for pattern in patterns):
            return True
        if key == "measured.n_ctx" and name.startswith(("suite.", "executor.", "engine.n_ctx")):
            return True
        # A clause brings the name and the digest of its prompt along, and so does a rewrite.
        if name in _PROMPT_PARTS and key in ("prompt.name", "prompt.sha256", "measured.n_ctx"):
            return True
        if name == "prompt.rewrites" and key == "prompt.rewrite_seed":
            return True
        # The tasks' digest follows from the suite's keys.
        if key == "suite.sha256" and name.startswith("suite."):
            return True
    return False


def _keys(scopes: Iterable[Scope]) -> tuple[str, ...]:
    return tuple(sorted({key for one in scopes for key in one}, key=_rank))


@cache
def _rank(key: str) -> tuple[int, int, str]:
    """Names first, then keys of the configuration in its order, then what was measured, digests last."""
    names = list(NAMES.values())
    if key in names:
        return 0, names.index(key), key
    asked = list(identity_keys())
    if _is_hash(key):
        return 3, 0, key
    return (1, asked.index(key), key) if key in asked else (2, 0, key)


def _is_hash(key: str) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in _HASHES)


def _leads(leader: str, key: str) -> bool:
    return leader != key and any(
        fnmatchcase(leader, one) and any(fnmatchcase(key, pattern) for pattern in patterns)
        for one, patterns in _FOLLOWS
    )


def _telling(scopes: Sequence[Scope], differing: Sequence[str]) -> dict[str, list[Scope]]:
    """For each differing key the scopes of which it is told.

    A name is not told, since a reader sees it; a key that follows from others is told only of scopes that
    these leave alike.
    """
    found: dict[str, list[Scope]] = {}
    for key in differing:
        found[key] = []
        if key in NAMES.values():
            continue
        leaders = [other for other in differing if _leads(other, key) and _rank(other) < _rank(key)]
        alike: dict[tuple[str, ...], list[Scope]] = defaultdict(list)
        for one in scopes:
            alike[tuple(one.get(leader, "") for leader in leaders)].append(one)
        for members in alike.values():
            if len({one.get(key) for one in members}) > 1:
                found[key] += members
    return found


def _short(value: str) -> str:
    """A value on one line, not longer than a reader takes in."""
    text = " ".join(value.split())
    return text if len(text) <= 48 else f"{text[:45]}…"
