"""Logs of other programs into the store: an imported file is one complete run, found again by its digest."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import qfr
from qfr.analysis.levels import NOT_STATED
from qfr.analysis.trials import FOREIGN, describe
from qfr.canonical import canonical, digest, sha256_hex
from qfr.errors import TrackingError
from qfr.facts import CellFacts
from qfr.foreign import ForeignInfo, ForeignRun, Requestor, SourceKind
from qfr.foreign.measures import Convention, channel_rates, pass_hat_k, success
from qfr.identity import IDENTITY_VERSION
from qfr.journal import log_bytes
from qfr.places import data_folder
from qfr.play.run_facts import git_state
from qfr.records import SCHEMA_VERSION, FaultKind
from qfr.registration.source_code import code_sha256
from qfr.scoring import SCORER_VERSION
from qfr.tracking.reading.search import is_complete, runs_of_cell
from qfr.tracking.reading.simulations import SIMULATIONS_FILE
from qfr.tracking.reading.tables import readable
from qfr.tracking.store import Store, hold_lock
from qfr.tracking.writing.writer import FinishedCell, finish_cell, start_cell

#: The experiment that imported logs go to unless another is named.
EXPERIMENT = "qfr-foreign"
#: Exponents of pass^k that are logged and printed at most.
MOST_K = 8

_ENGINES = {SourceKind.tau2: "tau2", SourceKind.tau1: "tau-bench", SourceKind.neutral: "other"}
_LONGEST_NAME = 200
# MLflow's params hold more; a name is read by a person.


@dataclass(frozen=True)
class Log:
    """A log that was read, and what its run says of it."""

    run: ForeignRun
    facts: CellFacts
    # Before it is logged only `host` and the code's state say anything of this machine.


@dataclass(frozen=True)
class Logged:
    """What became of a log in the store."""

    run_id: str
    new: bool
    # False: the store held it already.


def cell_of(run: ForeignRun, quant: str = NOT_STATED) -> CellFacts:
    """Return the facts of a log's cell: executor ``foreign``, fault ``none``, no model file and no engine.

    Its ``cell_id`` follows from the file's digest alone; see `_treatment` for what may be contrasted.
    """
    info = run.info
    engine, domain = _ENGINES[info.kind], _name(info.domain)
    cell_id, model = f"f-{info.sha256[:16]}", _name(info.model)
    suite_sha256, executor_sha256 = _treatment(info, engine, domain)
    commit, dirty = git_state(str(data_folder()))
    return CellFacts(
        model=model,
        quant=quant,
        prompt=NOT_STATED,
        fault=str(FaultKind.none),
        suite=domain or "unknown",
        executor=FOREIGN,
        gate="certified",
        trial=0,
        design_id="d-" + digest([engine, model, quant, suite_sha256, executor_sha256])[:16],
        cell_id=cell_id,
        clean_id=cell_id,
        sweep="",
        identity_version=IDENTITY_VERSION,
        schema_version=SCHEMA_VERSION,
        scorer_version=SCORER_VERSION,
        prompt_sha256="",
        suite_sha256=suite_sha256,
        template_sha256="",
        executor_sha256=executor_sha256,
        fault_sha256="",
        step_budget=info.max_steps or 0,
        error_budget=info.max_errors or 0,
        model_sha256="",
        model_bytes=0,
        model_source="imported",
        model_revision="",
        imatrix="",
        tensor_types="",
        reference_agent=False,
        engine=engine,
        llama_commit="",
        llama_commit_source="",
        library_version=f"{info.kind} {info.release}",
        library_sha256="",
        device="",
        offloaded_layers=0,
        n_ctx=0,
        n_batch=0,
        n_threads=0,
        n_threads_batch=0,
        streams=0,
        rewind=False,
        git_commit=commit,
        git_dirty=dirty,
        qfr_version=qfr.__version__,
        host=socket.gethostname(),
        config=describe(run),
        code_sha256=code_sha256(),
    )


def _treatment(info: ForeignInfo, engine: str, domain: str) -> tuple[str, str]:
    """Digests of what must agree before two logs are contrasted: suite, and executor."""
    # A log that does not say its domain has tasks of its own.
    suite = [engine, domain] if domain else [engine, domain, info.sha256]
    release = str(info.release)
    return digest(suite), digest([info.agent, info.user_model, info.max_steps, info.max_errors, release])


def check_store(store: Store, logs: Sequence[Log]) -> None:
    """Make sure that the store holds none of the logs under another name or by another reading.

    Raises
    ------
    TrackingError
        It does: one file must not count as two presets.
    """
    for log in logs:
        for known in _known(store, log):
            where = f"run {known.run_id} in {store.shown}"
            hint = "delete that run in MLflow to import the log again"
            if known.names != f"{log.facts.model} {log.facts.quant}":
                raise TrackingError(
                    f"{log.run.info.source} is in the store already, as {known.names}", where=where, hint=hint
                )
            digest_now = sha256_hex(log_bytes(found.episode for found in log.run.episodes))
            if known.complete and known.log_sha256 != digest_now:
                raise TrackingError(
                    f"{log.run.info.source} was imported by another version of qfr, which read it otherwise",
                    where=where,
                    hint=hint,
                )


def log_import(store: Store, log: Log) -> Logged:
    """Log one file as a complete run; a file that the store holds already is left alone.

    Raises
    ------
    TrackingError
        The store did not take it; the same command resumes.
    """
    with hold_lock(store.root, f"import-{log.facts.cell_id}"):
        for known in _known(store, log):
            if known.complete:
                return Logged(known.run_id, False)
        handle = start_cell(store, log.facts, None)
        finish_cell(store, handle, _finished(log))
        return Logged(handle.run_id, True)


@dataclass(frozen=True)
class _Known:
    """A run that the store has of a log."""

    run_id: str
    complete: bool
    names: str
    # Model and preset.
    log_sha256: str


def _known(store: Store, log: Log) -> list[_Known]:
    found = []
    for run in runs_of_cell(store, log.facts.cell_id):
        params, tags = run.data.params, run.data.tags
        names = f"{params.get('model')} {params.get('quant')}"
        found.append(_Known(str(run.info.run_id), is_complete(run), names, tags.get("qfr.log_sha256", "")))
    return found


def _finished(log: Log) -> FinishedCell:
    run = log.run
    episodes = tuple(found.episode for found in run.episodes)
    suite = {"name": log.facts.suite, "engine": log.facts.engine, "tasks": list(map(readable, run.tasks))}
    return FinishedCell(
        facts=log.facts,
        episodes=episodes,
        clean=episodes,
        work=None,
        prompt=b"",
        suite=canonical(suite).encode("ascii"),
        # JSON is YAML.
        config_yaml=log.facts.config + "\n",
        timing=b"",
        ep_min_calls=2,
        more_files={SIMULATIONS_FILE: _simulations(run)},
        more_metrics=_metrics(run),
    )


def _simulations(run: ForeignRun) -> bytes:
    """What the records do not hold, one line per scored simulation: both sides' calls, talk, reward."""
    lines = []
    for found in run.episodes:
        row = {
            "task": found.episode.task,
            "trial": found.episode.trial,
            "simulation": found.simulation,
            "termination_reason": found.termination_reason,
            "reward": found.reward,
            "agent_errors": found.errors(Requestor.agent),
            "user_errors": found.errors(Requestor.user),
            "agent_messages": found.agent_messages,
            "left_in_text": found.left_in_text,
            "completion_tokens": found.completion_tokens,
            "calls": [asdict(call) for call in found.calls],
            "talk": [asdict(talk) for talk in found.talk],
        }
        lines.append(canonical(row))
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _metrics(run: ForeignRun) -> dict[str, float]:
    """Figures that MLflow's own tables show; those without a denominator are left out."""
    share = success(run)
    found: dict[str, float | None] = {
        "foreign.success": share.share,
        "foreign.success_excluded_failed": share.low,
        "foreign.success_excluded_succeeded": share.high,
        "foreign.excluded": float(share.excluded),
    }
    for k in range(1, min(run.info.trials, MOST_K) + 1):
        for convention in Convention:
            found[f"foreign.pass_hat_{k}_excluded_{convention}"] = pass_hat_k(run, k, convention).value
    for rate in channel_rates(run):
        found[f"foreign.{rate.channel}_per_call"] = rate.rate
        found[f"foreign.{rate.channel}_simulations"] = rate.share
    return {name: value for name, value in found.items() if value is not None}


def _name(text: str) -> str:
    """A name of the log as MLflow holds it."""
    return readable(text)[:_LONGEST_NAME]
