"""Ids that follow from what can change an episode's bytes.

`design_id` is what can be planned and registered anywhere; `cell_id` adds what was measured where it ran.
Both are hashes over canonical JSON and carry IDENTITY_VERSION.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from qfr.canonical import digest, sha256_hex
from qfr.clauses import Clause
from qfr.config import CellConfig, EngineKind, ModelConfig
from qfr.faults import FAULTS, FaultKind

IDENTITY_VERSION = 1

# Keys that came later: hashed only when they differ from the value that reproduces the old behaviour.
LATER_KEYS: dict[str, object] = {
    "engine.temperature": 0.0,
    "engine.top_k": 0,
    "engine.top_p": 1.0,
    "engine.min_p": 0.0,
    "engine.noise": "shared",
    "engine.server.name": None,
    "engine.server.model": None,
    "engine.server.request": "{}",
    "model.template": None,
    "model.template_options": None,
    "suite.options": {},
    "executor.thinking": "template",
    "prompt.bare": False,
    "prompt.base": None,
    "prompt.clauses": [],
    **{f"prompt.{clause.value}": None for clause in Clause},
    "prompt.rewrites": [],
    "prompt.rewrite_seed": 0,
}


# Settings of engines that evaluate tokens themselves.
_IN_PROCESS = frozenset(
    f"engine.{name}"
    for name in (
        *("n_ctx", "n_batch", "n_ubatch", "n_threads", "n_threads_batch", "n_gpu_layers", "split_mode"),
        *("flash_attn", "type_k", "type_v", "swa_full", "skill"),
    )
)


def irrelevant(key: str, engine: str, fault: str) -> bool:
    """Whether an identity key changes nothing: of another engine, or of a fault that is not injected.

    Parameters
    ----------
    key : str
        Such as ``engine.n_batch``.
    engine, fault : str
        Kinds of the cell's engine and fault.
    """
    if engine == EngineKind.openai and key in _IN_PROCESS:
        # How this process would evaluate tokens changes nothing; which server answers does.
        return True
    if key == "suite.gate" and fault == FaultKind.none:
        # A clean pass is the same whatever would be injected later, and on which tasks.
        return True
    group, _, name = key.partition(".")
    return group == "fault" and name != "kind" and name not in FAULTS[FaultKind(fault)].keys


def identity_fields(value: Any, prefix: str = "") -> dict[str, object]:
    """Flat map of all identity fields, `"engine.n_batch": 512`."""
    out: dict[str, object] = {}
    for field in dataclasses.fields(value):
        if not field.metadata["identity"]:
            continue
        key, item = f"{prefix}{field.name}", getattr(value, field.name)
        if dataclasses.is_dataclass(item):
            out.update(identity_fields(item, f"{key}."))
        elif not (key in LATER_KEYS and LATER_KEYS[key] == item):
            out[key] = item
    return out


def group_fields(cfg: CellConfig, group: str) -> dict[str, object]:
    """The identity fields of one group under their own names, later keys left out as in `identity_fields`."""
    prefix = f"{group}."
    fields = identity_fields(getattr(cfg, group), prefix)
    return {key.removeprefix(prefix): value for key, value in fields.items()}


def fault_fields(cfg: CellConfig) -> dict[str, object]:
    """The fault's kind and the keys that this kind reads: what tells its cell from others."""
    keys = ("kind", *FAULTS[cfg.fault.kind].keys)
    fields = group_fields(cfg, "fault")
    return {key: fields[key] for key in keys if key in fields}


def declared_source(cfg: CellConfig) -> dict[str, object]:
    """The model source as it can be declared before any file is at hand.

    Only the file that the preset uses counts: pinning another preset's digest changes nothing here.
    """
    model, preset = cfg.model, cfg.quant.preset
    source: dict[str, object] = {"name": model.name, "preset": preset}
    source |= _declared_template(model)
    if cfg.engine.kind is EngineKind.openai:
        # The weights are the server's; what it says of them is measured when it is asked.
        return source
    if model.path is not None:
        return source | {"path": PurePath(model.path).name}
    if model.base is not None:
        return source | {"base": PurePath(model.base).name, "imatrix": cfg.quant.imatrix is not None}
    chosen = preset if preset in model.files else model.derive_from
    file = model.files.get(chosen or "")
    if file is not None:
        source |= {"sha256": file.sha256} if file.sha256 else {"file": file.filename}
        if file.sha256 is None:
            source |= {"repo_id": model.repo_id, "revision": model.revision}
    if chosen != preset:
        source |= {"derived_from": chosen, "imatrix": cfg.quant.imatrix is not None}
    return source


def _declared_template(model: ModelConfig) -> dict[str, object]:
    """The chat template that takes the place of the file's own, and its variables; nothing where unset."""
    declared: dict[str, object] = {}
    if model.template is not None:
        path = Path(model.template).expanduser()
        declared["template"] = sha256_hex(path.read_bytes()) if path.is_file() else model.template
    if model.template_options:
        declared["template_options"] = model.template_options
    return declared


def design_fields(
    cfg: CellConfig, *, prompt_sha256: str, suite_sha256: str, llama_commit: str
) -> dict[str, object]:
    """Everything that `design_id` is the hash of, as a JSON object: what a registration freezes of a cell."""
    fields = {
        key: value
        for key, value in identity_fields(cfg).items()
        if not key.startswith(("model.", "quant.", "prompt.", "fault."))
    }
    kinds = (cfg.engine.kind, cfg.fault.kind)
    fields = {key: value for key, value in fields.items() if not irrelevant(key, *kinds)}
    if cfg.engine.kind is EngineKind.openai:
        fields["engine.server.name"] = cfg.engine.server.identity_name
    return {
        "identity_version": IDENTITY_VERSION,
        "fields": fields,
        "fault": fault_fields(cfg),
        "source": declared_source(cfg),
        "prompt_sha256": prompt_sha256,
        "suite_sha256": suite_sha256,
        "llama_commit": llama_commit.removesuffix("-dirty"),
    }


def id_of_design(fields: Mapping[str, object]) -> str:
    """`d-` and 16 hex digits, from `design_fields`."""
    return "d-" + digest(fields)[:16]


def design_id(cfg: CellConfig, *, prompt_sha256: str, suite_sha256: str, llama_commit: str) -> str:
    """`d-` and 16 hex digits: the cell as it can be planned on any machine."""
    return id_of_design(
        design_fields(cfg, prompt_sha256=prompt_sha256, suite_sha256=suite_sha256, llama_commit=llama_commit)
    )


def cell_id(
    design: str, *, model_sha256: str, library_sha256: str, device: str, offloaded_layers: int, n_ctx: int
) -> str:
    """`c-` and 16 hex digits: the cell as it ran."""
    measured: dict[str, object] = {
        "design": design,
        "model_sha256": model_sha256,
        "library_sha256": library_sha256,
        "device": device,
        "offloaded_layers": offloaded_layers,
        "n_ctx": n_ctx,
    }
    return "c-" + digest(measured)[:16]


def clean_of(cfg: CellConfig) -> CellConfig:
    """The same cell without a fault: its clean pass."""
    return dataclasses.replace(cfg, fault=dataclasses.replace(cfg.fault, kind=FaultKind.none))
