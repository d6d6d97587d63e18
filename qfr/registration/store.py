"""Registrations in the store: a run of the experiment `qfr-registrations` each, written once.

The digest stands in a param, which MLflow never changes; the document, its rendering, the prompts, suites and
hypotheses are artifacts.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from mlflow.entities import Run, ViewType

from qfr.canonical import canonical
from qfr.registration.label import Shape, relation
from qfr.registration.record import ExistingRun, Record, digest_of, id_of
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.reading.search import candidates, is_complete, search
from qfr.tracking.store import Store, guard, hold_lock, open_store, peek_store
from qfr.tracking.writing.batches import log_batches, log_files
from qfr.tracking.writing.owner import source_tags

EXPERIMENT = "qfr-registrations"
RECORD_FILE, MARKDOWN_FILE = "record.json", "record.md"


@dataclass(frozen=True)
class Registered:
    """A registration as the store holds it."""

    digest: str
    # 64 hexadecimal digits, from the write-once param.
    run_id: str
    title: str
    started: int
    # Milliseconds since 1970.
    artifact_uri: str
    params: Mapping[str, str]
    # All that were written, write-once.

    @property
    def id(self) -> str:
        """`r-` and 16 digits."""
        return id_of(self.digest)


@dataclass(frozen=True)
class LoggedRun:
    """A cell's run and the experiment that it stands in."""

    store: Store
    run: Run

    @property
    def run_id(self) -> str:
        """MLflow's id."""
        return str(self.run.info.run_id)

    @property
    def name(self) -> str:
        """The run's name."""
        return str(self.run.info.run_name)

    @property
    def fault(self) -> str:
        """Kind of fault."""
        return str(self.run.data.params.get("fault", ""))

    def tag(self, name: str) -> str:
        """A tag under `qfr.`, "" where there is none."""
        return str(self.run.data.tags.get(f"qfr.{name}", ""))


def log_registration(
    uri: str | None, root: Path, data: bytes, record: Record, markdown: str, *, origin: str
) -> Registered:
    """Put a record into the store; a second time changes nothing.

    Parameters
    ----------
    uri, root
        As `open_store`.
    data : bytes
        The document.
    origin : str
        registered = frozen here; carried = brought here from another store by its file.

    Raises
    ------
    TrackingError
        The store does not take it.
    """
    store = open_store(uri, root, EXPERIMENT)
    digest = digest_of(data)
    with hold_lock(store.root, f"registration-{digest[:16]}"):
        known = next((one for one in _registered(store) if one.digest == digest), None)
        if known is not None:
            return known
        tags = {
            "qfr.kind": "registration",
            "qfr.registration": id_of(digest),
            "qfr.origin": origin,
            **source_tags(record.code.commit),
        }
        with guard(store.shown, store.tracking_uri):
            run = store.client.create_run(
                store.experiment_id, run_name=f"{id_of(digest)} {record.title}"[:200], tags=tags
            )
            run_id = run.info.run_id
            log_files(
                store, run_id, {**artifact_files(record), RECORD_FILE: data, MARKDOWN_FILE: markdown.encode()}
            )
            # The params come last: a run without a digest is no registration.
            log_batches(store, run_id, params=params_of(record, digest))
            store.client.set_terminated(run_id, "FINISHED")
            run = store.client.get_run(run_id)
    return _of_run(run, digest)


def find_registrations(uri: str | None, root: Path) -> tuple[Store | None, tuple[Registered, ...]]:
    """The store's registrations, newest first, and the store itself; creates nothing."""
    store = peek_store(uri, root, EXPERIMENT)
    return store, () if store is None else _registered(store)


def read_document(store: Store, registered: Registered) -> bytes:
    """The document as the store holds it, changed or not."""
    return read_artifact(store, registered.run_id, registered.artifact_uri, RECORD_FILE)


def existing_runs(store: Store, shape: Shape) -> tuple[ExistingRun, ...]:
    """Runs of any experiment that say something about a grid, deleted ones included; oldest first."""
    experiments = _experiments(store)
    suites = {suite for suite, _, _ in shape.settings} if experiments else set()
    found: list[ExistingRun] = []
    for suite in sorted(suites):
        condition = f"tags.`qfr.suite_sha256` = '{suite}'"
        for run in search(store, condition, experiment_ids=list(experiments), deleted=True):
            tags = run.data.tags
            kind = relation(
                shape,
                design_id=tags.get("qfr.design_id", ""),
                setting=(suite, tags.get("qfr.prompt_sha256", ""), run.data.params.get("fault", "")),
                engine=tags.get("qfr.engine", ""),
            )
            if kind is None:
                continue
            found.append(
                ExistingRun(
                    relation=kind,
                    name=str(run.info.run_name),
                    design_id=tags.get("qfr.design_id", ""),
                    run_id=run.info.run_id,
                    experiment=experiments[run.info.experiment_id],
                    started=utc(run.info.start_time),
                    status=str(run.info.status),
                    complete=is_complete(run),
                    deleted=run.info.lifecycle_stage == "deleted",
                    registration=tags.get("qfr.registration", ""),
                    log_sha256=tags.get("qfr.log_sha256", ""),
                )
            )
    return tuple(sorted(found, key=lambda run: (run.started, run.name, run.run_id)))


def runs_under(store: Store, registration: str) -> list[LoggedRun]:
    """All cell runs that carry a registration, with their experiments, newest first in each."""
    condition = f"tags.`qfr.kind` = 'cell' AND tags.`qfr.registration` = '{registration}'"
    experiments = _experiments(store)
    found = search(store, condition, experiment_ids=list(experiments)) if experiments else ()
    return [_of_experiment(store, run, experiments) for run in found]


def runs_outside(store: Store, registration: str, designs: set[str]) -> list[LoggedRun]:
    """Finished runs of designs that do not carry the registration, with their experiments."""
    experiments = _experiments(store)
    if not experiments:
        return []
    found = candidates(store, "qfr.design_id", designs, finished=True, experiment_ids=list(experiments))
    logged = [_of_experiment(store, run, experiments) for run in found]
    return [one for one in logged if one.tag("registration") != registration]


def _of_experiment(store: Store, run: Run, experiments: dict[str, str]) -> LoggedRun:
    own = run.info.experiment_id
    return LoggedRun(dataclasses.replace(store, experiment=experiments[own], experiment_id=own), run)


def utc(milliseconds: int) -> str:
    """A time as a record writes it: 2026-01-31T14:25:01Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(milliseconds // 1000))


def _experiments(store: Store) -> dict[str, str]:
    """Name by id of every experiment but the registrations', deleted ones included."""
    with guard(store.shown, store.tracking_uri):
        found, token = [], None
        while True:
            page = store.client.search_experiments(view_type=ViewType.ALL, page_token=token)
            found += list(page)
            token = page.token
            if not token:
                break
    return {one.experiment_id: one.name for one in found if one.name != EXPERIMENT}


def _registered(store: Store) -> tuple[Registered, ...]:
    runs = search(store, "tags.`qfr.kind` = 'registration'")
    return tuple(_of_run(run, run.data.params["digest"]) for run in runs if run.data.params.get("digest"))


def _of_run(run: Run, digest: str) -> Registered:
    title = run.data.params.get("title", "")
    info = run.info
    return Registered(digest, info.run_id, title, info.start_time, info.artifact_uri, dict(run.data.params))


def params_of(record: Record, digest: str) -> dict[str, str]:
    """The params of a registration's run."""
    return {
        "digest": digest,
        "title": record.title[:500],
        "registered": record.registered,
        "label": str(record.label),
        "cells": str(len(record.asked)),
        "code_commit": record.code.commit,
        "code_dirty": str(record.code.dirty).lower(),
        "code_sha256": record.code.sha256,
        "llama_commit": record.llama_commit,
    }


def artifact_files(record: Record) -> dict[str, bytes]:
    """What is also worth reading apart from the document. Texts keep their bytes."""
    files = {f"prompts/{one.sha256[:12]}-{_plain(one.name)}": one.text.encode() for one in record.prompts}
    files |= {
        f"suites/{one.sha256[:12]}-{_plain(one.name)}.json": one.content.encode() for one in record.suites
    }
    if record.hypotheses is not None:
        files[f"hypotheses/{_plain(record.hypotheses.name)}"] = record.hypotheses.text.encode()
    if record.code.diff:
        files["code.diff"] = record.code.diff.encode("utf-8", "backslashreplace")
    cells = [
        {
            "name": one.name,
            "design_id": one.design_id,
            "asked": one.asked,
            "design": json.loads(canonical(dict(one.design))),
        }
        for one in record.cells
    ]
    files["cells.yaml"] = str(yaml.safe_dump(cells, sort_keys=False, allow_unicode=True)).encode()
    return files


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)
