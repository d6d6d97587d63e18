"""Gathers what a run says about itself."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
from functools import cache
from pathlib import Path

import qfr
from qfr.canonical import canonical, digest
from qfr.config import CellConfig, EngineKind
from qfr.engine.base import EngineInfo
from qfr.engine.files.gguf import ModelFile
from qfr.episode import schema_version
from qfr.facts import CellFacts
from qfr.grid.checks import build_world
from qfr.grid.design import Design
from qfr.identity import IDENTITY_VERSION, cell_id, fault_fields, group_fields
from qfr.places import data_folder
from qfr.registration.source_code import code_sha256
from qfr.scoring import SCORER_VERSION
from qfr.shards import shard_of, whole_id, with_shard
from qfr.tracking.environment import redact


def measured_ids(design: Design, info: EngineInfo) -> tuple[str, str]:
    """(cell_id, cell_id of the clean pass) on this machine."""

    def one(design_id: str) -> str:
        measured = cell_id(
            whole_id(design_id),
            model_sha256=info.model_sha256,
            library_sha256=info.library_sha256,
            device=info.device,
            offloaded_layers=info.offloaded_layers,
            n_ctx=info.n_ctx,
        )
        return with_shard(measured, shard_of(design_id))

    return one(design.design_id), one(design.clean_design_id)


def gather(
    cell: CellConfig, design: Design, info: EngineInfo, model: ModelFile | None, repeat: str = ""
) -> CellFacts:
    """The facts of one cell. `repeat` says what a repeated episode showed, where that was tried."""
    own, clean = measured_ids(design, info)
    commit, dirty = git_state(str(data_folder()))
    return CellFacts(
        model=cell.model.name,
        quant=cell.quant.preset,
        prompt=cell.prompt.name,
        fault=str(cell.fault.kind),
        suite=cell.suite.name,
        executor=str(cell.executor.kind),
        gate=str(cell.suite.gate),
        trial=cell.trial,
        design_id=design.design_id,
        cell_id=own,
        clean_id=clean,
        sweep=cell.sweep or "",
        identity_version=IDENTITY_VERSION,
        schema_version=schema_version(cell.executor.kind, plain=build_world(cell.suite).plain),
        scorer_version=SCORER_VERSION,
        prompt_sha256=design.prompt.sha256,
        suite_sha256=design.suite_sha256,
        template_sha256=info.template_sha256,
        executor_sha256=digest(
            [group_fields(cell, "executor"), cell.suite.step_budget, cell.suite.error_budget]
        ),
        fault_sha256=digest(list(fault_fields(cell).values())),
        step_budget=cell.suite.step_budget,
        error_budget=cell.suite.error_budget,
        model_sha256=info.model_sha256,
        model_bytes=info.model_bytes,
        model_source="server" if info.kind == EngineKind.openai else model_source(model),
        model_revision="" if model is None else model.revision or "",
        imatrix=imatrix_of(model),
        tensor_types=" ".join(f"{name}:{count}" for name, count in info.tensor_types),
        reference_agent=cell.model.reference_agent,
        engine=info.kind,
        llama_commit=info.llama_commit,
        llama_commit_source=info.llama_commit_source,
        library_version=info.library_version,
        library_sha256=info.library_sha256,
        device=info.device,
        offloaded_layers=info.offloaded_layers,
        n_ctx=info.n_ctx,
        n_batch=cell.engine.n_batch,
        n_threads=cell.engine.n_threads,
        n_threads_batch=cell.engine.n_threads_batch,
        streams=cell.engine.streams,
        rewind=info.rewind,
        git_commit=commit,
        git_dirty=dirty,
        qfr_version=qfr.__version__,
        host=socket.gethostname(),
        config=canonical(dataclasses.asdict(recorded(cell))),
        code_sha256=code_sha256(),
        server=info.system_info if info.kind == EngineKind.openai else "",
        repeat=repeat,
        exactness=info.exactness,
    )


def model_source(model: ModelFile | None) -> str:
    """path, folder, package, hub, derived or requantized; "scripted" without a file."""
    if model is None:
        return "scripted"
    if model.derivation is None:
        return model.origin
    return "requantized" if model.derivation.requantized else "derived"


def imatrix_of(model: ModelFile | None) -> str:
    """The importance matrix behind a file: its recorded name, or the digest of the one used here."""
    if model is None:
        return ""
    named = dict(model.facts.imatrix).get("quantize.imatrix.file", "")
    if named or model.derivation is None:
        return named
    return model.derivation.imatrix_sha256 or ""


@cache
def git_state(folder: str) -> tuple[str, bool]:
    """(commit, dirty) of the checkout that a folder stands in; ("", False) where there is none."""
    if not (Path(folder) / ".git").exists():
        return "", False
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return commit, bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (FileNotFoundError, subprocess.CalledProcessError):
        # No git, or a checkout that git refuses (another owner, no commit yet).
        return "", False


def _git(folder: str, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def recorded(cell: CellConfig) -> CellConfig:
    """The cell as it is written down: its store's address without a password."""
    uri = cell.tracking.uri
    if uri is None or redact(uri, uri) == uri:
        return cell
    return dataclasses.replace(cell, tracking=dataclasses.replace(cell.tracking, uri=redact(uri, uri)))
