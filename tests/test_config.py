"""conf/ holds data only, every choice is a valid cell, pins are true, and each field knows what it is."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import importlib.util
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir

from qfr.clauses import Clause, has
from qfr.config import PRESET_BITS, SERVED_BITS, CellConfig, EngineKind, ExecutorKind, FileConfig, Gate, Mode
from qfr.errors import ConfigError
from qfr.faults import FAULTS, Reach
from qfr.front.compose import to_cell
from qfr.front.schema import key_types
from qfr.grid.checks import build_world, check_cell
from qfr.grid.design import design_of
from qfr.identity import LATER_KEYS, design_fields, group_fields, identity_fields
from qfr.records import FaultKind, Policy
from qfr.shards import whole_id
from qfr.world.base import sites

CONF = Path(__file__).parent.parent / "conf"
PROMPTS = CONF.parent / "prompts"
GROUPS = sorted(
    path.name for path in CONF.iterdir() if path.is_dir() and path.name not in ("hydra", "experiment")
)
CHOICES = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]


@pytest.fixture(scope="module")
def composer() -> Iterator[Any]:
    def composed(*overrides: str) -> CellConfig:
        return to_cell(compose("config", overrides=["hydra/sweeper=basic", *overrides]))

    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield composed


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_choice_fills_the_closed_schema(group: str, name: str, composer: Any) -> None:
    also = [] if group == "model" and name != "local" else ["model=local", "model.path=x.gguf"]
    if name == "openai" or (group == "quant" and name.upper() in SERVED_BITS):
        also = ["engine=openai", "engine.server.base_url=http://127.0.0.1:8000/v1"]
    check_cell(composer(f"{group}={name}", *also))


def test_the_groups_are_those_that_the_documentation_names() -> None:
    names = {group: {name for other, name in CHOICES if other == group} for group in GROUPS}
    assert names["model"] >= {"llama", "qwen", "smollm2", "scripted", "local"}
    assert names["prompt"] >= {"P0", "P1", "P2", "P3", "P4"}
    assert names["fault"] == set(FaultKind)
    assert names["suite"] >= {"orders20", "orders40", "orders20_ref"}
    wanted = "f16 bf16 q8_0 q6_k q5_k_m q4_k_m q3_k_m q2_k q4_1"
    assert names["quant"] >= set(wanted.split())
    experiments = {path.stem for path in (CONF / "experiment").glob("*.yaml")}
    assert experiments >= {"demo", "smoke", "hu2026_llama", "hu2026_qwen", "hu2026_ladder", "hu2026_ladder40"}


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: str(path.relative_to(CONF)))
def test_conf_is_data_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text) is not None
    if path.is_relative_to(CONF / "hydra"):
        return
    assert "_target_" not in text
    # Interpolation only where Hydra's own folders and help are named; comments may show some to type.
    found = re.findall(r"\$\{[^}]*\}", re.sub(r"(?m)^#.*$", "", text))
    assert found == (
        []
        if path.name != "config.yaml"
        else ["${tracking.root}", "${sweep}", *[f for f in found if "hydra." in f]]
    )


@pytest.mark.parametrize("name", ["P0", "P1", "P2", "P3", "P4"])
def test_prompt_pins_match_the_files(name: str) -> None:
    pinned = yaml.safe_load((CONF / "prompt" / f"{name}.yaml").read_text())
    assert pinned["name"] == name
    assert pinned["sha256"] == hashlib.sha256((PROMPTS / pinned["file"]).read_bytes()).hexdigest()


def test_the_packaged_model_is_the_pinned_one() -> None:
    pinned = yaml.safe_load((CONF / "model" / "smollm2.yaml").read_text())
    spec = importlib.util.find_spec(pinned["package"])
    assert spec is not None
    assert spec.origin is not None
    file = pinned["files"]["Q4_1"]
    path = Path(spec.origin).parent / file["filename"]
    assert path.stat().st_size == file["bytes"]
    with path.open("rb") as stream:
        assert hashlib.file_digest(stream, "sha256").hexdigest() == file["sha256"]


@pytest.mark.parametrize("model", ["llama", "qwen"])
def test_published_files_are_known_presets(model: str, composer: Any) -> None:
    cell = composer(f"model={model}", "quant=q8_0")
    assert set(cell.model.files) <= set(PRESET_BITS)
    assert all(
        file.filename.lower().endswith(f"{preset.lower()}.gguf") for preset, file in cell.model.files.items()
    )
    assert cell.model.revision is None or re.fullmatch(r"[0-9a-f]{40}", cell.model.revision)
    unpinned = [preset for preset, file in cell.model.files.items() if file.sha256 is None]
    assert unpinned == (["Q2_K"] if model == "llama" else [])


def test_orders20_has_the_published_sites(composer: Any) -> None:
    world = build_world(composer("model=scripted", "quant=q8_0", "suite=orders20").suite)
    published = {FaultKind.et: 50, FaultKind.ep: 50, FaultKind.it: 40}
    assert {kind: sum(len(sites(task, kind)) for task in world.tasks) for kind in published} == published


def test_the_first_error_text_does_not_tell_the_kinds_apart(composer: Any) -> None:
    texts = {
        (cell.fault.code, cell.fault.message)
        for kind, fault in FAULTS.items()
        for cell in [composer("model=scripted", "quant=q8_0", f"fault={kind}")]
        # A rate limit says so, and for how long.
        if fault.reach is not Reach.turns
    }
    assert len(texts) == 1


# --- identity: every field, changed, changes the design or does not ---------------------------------------

# Another value for each field whose type does not suggest one.
OTHER: dict[str, Any] = {
    "mode": Mode.plan,
    "model.files": {"Q4_1": FileConfig("x.gguf", "0" * 64, None)},
    "model.derive_from": "F16",
    "suite.families": {"base": 1},
    "suite.world": "ledger",
    "suite.gate": Gate.none,
    "suite.grid": "round",
    "fault.kind": FaultKind.ep,
    "executor.kind": ExecutorKind.strict_feedback,
    "engine.kind": EngineKind.scripted,
    "engine.n_ctx": 4096,
    "engine.skill": {"Q8_0": 0.5},
    "engine.gpus": ["0"],
    "engine.server.timeout_s": 1.0,
    "suite.shard": "1/2",
    "scorer.policy": Policy.strict,
    "prompt.file": "P1.md",
    "prompt.sha256": None,
    "prompt.base": "P0",
    "prompt.clauses": ["retry_required"],
    **{f"prompt.{clause.value}": not has("P0", clause) for clause in Clause},
    "prompt.rewrites": ["spacing"],
    "walk": [FaultKind.et],
    "exclude": [{"model": "x"}],
}
# Marked as identity because they say which file or prompt it is; what counts is its content.
# Clauses are switched before a design is made, and a seed alone rewrites nothing.
BY_CONTENT = {
    *("model.allow_requantize", "prompt.name", "prompt.sha256"),
    *("prompt.base", "prompt.clauses", "prompt.rewrite_seed"),
}
LEAVES = [
    key
    for key, kind in key_types().items()
    # This world knows no options.
    if not dataclasses.is_dataclass(kind) and key != "suite.options"
]


@pytest.fixture(scope="module")
def derived(composer: Any) -> CellConfig:
    """A cell whose preset is derived from an unpinned file: repository, revision and imatrix all count."""
    cell: CellConfig = composer(
        "model=smollm2", "suite=orders20", "quant=q3_k_m", "prompt=P0", "engine=llama_cpp"
    )
    files = {"Q4_1": FileConfig("a.gguf", None, None), "F16": FileConfig("f.gguf", None, None)}
    model = dataclasses.replace(cell.model, files=files, repo_id="o/r", revision="r")
    return dataclasses.replace(cell, model=model)


@pytest.fixture(scope="module")
def design_id(derived: CellConfig) -> str:
    return design_of(derived).design_id


def changed(cell: CellConfig, key: str) -> CellConfig:
    """The cell with another value of one field, past all checks."""
    other = copy.deepcopy(cell)
    group, _, name = key.rpartition(".")
    node: Any = attrgetter(group)(other) if group else other
    value = getattr(node, name)
    if key in OTHER:
        new = OTHER[key]
    elif isinstance(value, bool):
        new = not value
    else:
        new = value + 1 if isinstance(value, int) else "other"
    assert new != value
    setattr(node, name, new)
    if key == "suite.world":
        other.suite.families = {"pay": 1}
    if key == "prompt.file":
        other.prompt.sha256 = None
    return other


@pytest.mark.parametrize("key", LEAVES)
def test_identity_fields_and_only_they_change_the_design(
    key: str, derived: CellConfig, design_id: str
) -> None:
    group, _, name = key.rpartition(".")
    owner = type(attrgetter(group)(derived)) if group else CellConfig
    marks = {field.name: field.metadata["identity"] for field in dataclasses.fields(owner)}
    counts = (marks[name] and key not in BY_CONTENT) or key == "prompt.file"
    readers = [kind for kind, fault in FAULTS.items() if group == "fault" and name in fault.keys]
    if readers:
        # What a kind does not read is no part of its cells.
        derived = dataclasses.replace(derived, fault=dataclasses.replace(derived.fault, kind=readers[-1]))
        design_id = design_of(derived).design_id
    # A shard is a part of the same design, and says so behind the id.
    assert (whole_id(design_of(changed(derived, key)).design_id) != design_id) == counts


def test_every_key_of_a_fault_is_read_by_a_kind_and_by_no_other(derived: CellConfig) -> None:
    names = {field.name for field in dataclasses.fields(derived.fault)} - {"kind"}
    assert names == {key for fault in FAULTS.values() for key in fault.keys}
    for kind, fault in FAULTS.items():
        cell = dataclasses.replace(derived, fault=dataclasses.replace(derived.fault, kind=kind))
        ids = {name: design_of(changed(cell, f"fault.{name}")).design_id for name in names}
        assert {name for name, id_ in ids.items() if id_ != design_of(cell).design_id} == set(fault.keys)


@pytest.mark.parametrize(
    "key",
    [
        *("fault.times", "executor.max_tokens", "suite.grid", "suite.step_budget", "engine.n_batch"),
        "trial",
    ],
)
def test_a_later_key_under_any_group_keeps_old_ids(
    key: str, derived: CellConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registered as later with the value it has, a key leaves the hash: the id of a time before it."""
    cell = dataclasses.replace(derived, fault=dataclasses.replace(derived.fault, kind=FaultKind.er))
    group, _, name = key.rpartition(".")
    value = getattr(attrgetter(group)(cell) if group else cell, name)
    whole = {"prompt_sha256": "p", "suite_sha256": "s", "llama_commit": "c"}

    def hashed() -> set[str]:
        fields = design_fields(cell, **whole)
        assert isinstance(fields["fields"], dict)
        assert isinstance(fields["fault"], dict)
        own = group_fields(cell, group.partition(".")[0]) if group else {}
        flat = {f"fault.{key}" for key in fields["fault"]} | set(fields["fields"])
        assert not own or (key.partition(".")[2] in own) == (key in flat)
        return flat

    before = hashed()
    assert key in before
    monkeypatch.setitem(LATER_KEYS, key, value)
    assert hashed() == before - {key}


def test_every_field_is_marked(derived: CellConfig) -> None:
    fields = identity_fields(derived)
    assert "engine.streams" in fields
    assert "trial" in fields
    assert not any(key.startswith(("scorer.", "tracking.", "report.")) for key in fields)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("model.name=a/b", "cannot be used as a name"),
        ("prompt.name=''", "cannot be used as a name"),
        ("model.path=a model.base=b", "both set"),
        ("model.derive_from=F16 model=smollm2", "not among model.files"),
        ("suite.families.base=0 suite.families.shipping=0", "no tasks"),
        ("engine.streams=300", "too large"),
        ("engine.split_mode=rows", "did you mean 'row'"),
        ("report.resamples=10", "at least 100"),
    ],
)
def test_cross_field_checks(override: str, told: str, composer: Any) -> None:
    with pytest.raises(ConfigError, match=told):
        composer(*override.split(" "))
