"""Verifying a registration: everything that can be derived again is, and compared with what was frozen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qfr.errors import LogError, PromptError, TrackingError
from qfr.places import prompt_path
from qfr.records import Episode, FaultKind, Policy
from qfr.registration import checks as checking
from qfr.registration import store as store_of
from qfr.registration.copies import best_record, gather_documents
from qfr.registration.evidence import read_evidence
from qfr.registration.findings import Against, Finding, RanCell, Verdict, good, note, problem
from qfr.registration.markdown import markdown
from qfr.registration.record import ID_DIGITS, FrozenCell, Record
from qfr.registration.run_under import record_files
from qfr.registration.source_code import code_files
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.store import Store
from qfr.world.base import Task, gold_call, sites


@dataclass(frozen=True)
class Verification:
    """What a verification found."""

    id: str
    record: Record | None
    # None when no copy of the document can be read.
    findings: tuple[Finding, ...]
    against: tuple[Against, ...]
    # Every planned cell that has a run, beside the earlier runs of its design.

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What is not as it was frozen."""
        return tuple(one for one in self.findings if one.verdict is Verdict.problem)


def verify(use: str, uri: str | None, root: Path, *, other_code: bool) -> Verification:
    """Verify a registration and the runs under it.

    Parameters
    ----------
    use : str
        `r-<digest prefix>`, or the JSON file.
    uri, root
        Of the store, as `open_store`.
    other_code : bool
        Accept that the code that verifies is not the frozen one (a later version): a note, no problem.

    Raises
    ------
    RegistrationError
        There is no such registration, or the prefix names several.
    TrackingError
        The store cannot be read.
    """
    store, known = store_of.find_registrations(uri, root)
    documents, kept = gather_documents(use, store, known)
    record, findings = best_record(documents)
    if record is None:
        return Verification(documents.expected[: 2 + ID_DIGITS], None, tuple(findings), ())
    own = kept.id if kept is not None else documents.expected[: 2 + ID_DIGITS]
    findings += checking.check_contents(record)
    code = checking.check_code(code_files(), record, allowed=other_code)
    findings += code
    findings += checking.check_prompts(_prompts_of_today(record), record)
    if store is None or kept is None:
        findings.append(problem(checking.RECORD, "the store holds no run of this registration"))
    else:
        findings += _kept_files(store, kept, record)
    same_code = code[0].verdict is Verdict.good
    findings += _renderings(store, kept, record, own, strict=same_code)
    if store is None:
        return Verification(own, record, tuple(findings), ())
    found, against = _runs(store, own, record)
    return Verification(own, record, (*findings, *found), against)


def _prompts_of_today(record: Record) -> Mapping[str, bytes | None]:
    present: dict[str, bytes | None] = {}
    for name in {text.base_file or text.name for text in record.prompts}:
        try:
            present[name] = prompt_path(name).read_bytes()
        except (PromptError, OSError):
            present[name] = None
    return present


def _kept_files(store: Store, kept: store_of.Registered, record: Record) -> list[Finding]:
    """The registration's run against what the record gives."""
    subject = f"{checking.RECORD}, run {kept.run_id}"
    findings = [
        problem(subject, f"param {name} is {kept.params.get(name)!r}, the record gives {value!r}")
        for name, value in store_of.params_of(record, kept.digest).items()
        if kept.params.get(name) != value
    ]
    for name, wanted in {**store_of.artifact_files(record), store_of.RECORD_FILE: None}.items():
        try:
            data = read_artifact(store, kept.run_id, kept.artifact_uri, name)
        except TrackingError as error:
            findings.append(problem(subject, error.what))
            continue
        if wanted is not None and data != wanted:
            findings.append(problem(subject, f"{name} is not what the record gives"))
    return findings


def _renderings(
    store: Store | None, kept: store_of.Registered | None, record: Record, own: str, *, strict: bool
) -> list[Finding]:
    """The Markdown files; another version of the code may render otherwise, which is then only a note."""
    found: list[tuple[str, bytes]] = []
    for path in record_files():
        page = path.with_suffix(".md")
        if path.stem == own and page.is_file():
            found.append((str(page), page.read_bytes()))
    if store is not None and kept is not None:
        try:
            data = read_artifact(store, kept.run_id, kept.artifact_uri, store_of.MARKDOWN_FILE)
            found.append((f"{store_of.MARKDOWN_FILE} of run {kept.run_id}", data))
        except TrackingError as error:
            return [problem(checking.RECORD, error.what)]
    wanted = markdown(record).encode()
    say = problem if strict else note
    return [
        say(checking.RECORD, f"{where} is not the record's rendering")
        for where, data in found
        if data != wanted
    ]


def _runs(store: Store, own: str, record: Record) -> tuple[list[Finding], tuple[Against, ...]]:
    """Every run under the registration, and the earlier runs of the same designs."""
    findings: list[Finding] = []
    ran: list[RanCell] = []
    screens: dict[str, tuple[Episode, ...]] = {}
    # Clean passes first: the metrics of fault runs follow from them too.
    for logged in sorted(store_of.runs_under(store, own), key=lambda one: one.fault != FaultKind.none):
        read, episodes, said = _evidence(logged, screens.get(logged.tag("clean_id")))
        findings += said
        if read is not None:
            ran.append(read)
            if read.facts.fault == FaultKind.none and read.complete:
                screens[read.facts.cell_id] = episodes
    if not ran:
        return [*findings, problem("cells", f"none of the {len(record.cells)} planned cells was run yet")], ()
    findings += checking.check_presence(record, ran)
    complete = {one.facts.design_id: one for one in reversed(ran) if one.complete}
    plans = _site_counts(record)
    for cell in record.cells:
        run_of_it, clean = complete.get(cell.design_id), complete.get(cell.clean_design_id)
        if run_of_it is not None:
            findings += checking.check_run(record, cell, run_of_it)
            findings += checking.check_clean(cell, run_of_it, clean)
            counts = plans[str(cell.design["suite_sha256"]), cell.fault]
            findings += checking.check_episodes(cell, run_of_it, clean, counts)
    # Runs that are no planned cell, or not the one that counts: their artifacts all the same.
    checked = {complete[cell.design_id].run_id for cell in record.cells if cell.design_id in complete}
    findings += [said for one in ran if one.run_id not in checked for said in one.findings]
    if not any(one.verdict is Verdict.problem for one in findings):
        done = "every log, table, score and metric derived again and equal"
        findings.append(good("runs", f"{len(ran)} runs: {done}; all started after the registration"))
    return findings, _against(store, own, record.cells, complete)


def _evidence(
    logged: store_of.LoggedRun, clean: tuple[Episode, ...] | None
) -> tuple[RanCell | None, tuple[Episode, ...], list[Finding]]:
    try:
        cell, episodes = read_evidence(logged, clean)
    except (TrackingError, LogError) as error:
        return None, (), [problem(f"run {logged.run_id} ({logged.name})", error.what)]
    return cell, episodes, []


def _site_counts(record: Record) -> dict[tuple[str, str], dict[str, int]]:
    """(suite digest, kind of fault) -> number of sites of each task, from the frozen suites themselves."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for suite in record.suites:
        tasks = [_task(raw) for raw in json.loads(suite.content)["tasks"]]
        for kind in FaultKind:
            found[suite.sha256, str(kind)] = {task.id: len(sites(task, kind)) for task in tasks}
    return found


def _task(raw: Mapping[str, object]) -> Task:
    """A frozen task, as far as its sites need it."""
    calls = raw["gold_calls"]
    assert isinstance(calls, list)
    return Task(str(raw["id"]), str(raw["family"]), str(raw["text"]), (), tuple(map(gold_call, calls)), None)


def _against(
    store: Store, own: str, cells: Sequence[FrozenCell], complete: Mapping[str, RanCell]
) -> tuple[Against, ...]:
    """Hu 2026 (section 3): the pinned sweep's clean sets and success counts equal the exploratory ones."""
    earlier: dict[str, list[store_of.LoggedRun]] = {}
    for logged in store_of.runs_outside(store, own, set(complete)):
        earlier.setdefault(logged.tag("design_id"), []).append(logged)
    found = []
    for cell in cells:
        if cell.design_id not in complete:
            continue
        others = earlier.get(cell.design_id, [])
        told = [_compared(complete[cell.design_id], one) for one in others]
        differing = [text for text in told if text]
        equal = None if not others else not differing
        found.append(
            Against(cell.name, len(others), equal, "; ".join(differing) or _counts(complete[cell.design_id]))
        )
    return tuple(found)


def _compared(mine: RanCell, earlier: store_of.LoggedRun) -> str:
    """In what an earlier run differs; "" for nothing."""
    if earlier.tag("log_sha256") == mine.log_sha256:
        return ""
    other, _, said = _evidence(earlier, None)
    if other is None:
        return f"run {earlier.run_id}: {said[0].text}"
    parts = []
    for policy in Policy:
        ours, theirs = set(mine.certified[policy]), set(other.certified[policy])
        if ours != theirs:
            more = [f"+{task}" for task in sorted(ours - theirs)] + [
                f"−{task}" for task in sorted(theirs - ours)
            ]
            parts.append(f"{policy} clean set {' '.join(more)}")
        if mine.facts.fault != FaultKind.none and mine.successes[policy] != other.successes[policy]:
            parts.append(f"{policy} successes {mine.successes[policy]}, earlier {other.successes[policy]}")
    return f"run {earlier.run_id}: {', '.join(parts)}" if parts else ""


def _counts(run: RanCell) -> str:
    counts = ", ".join(f"{run.successes[policy]} {policy}" for policy in Policy)
    what = "certified" if run.facts.fault == FaultKind.none else "successes"
    return f"{what}: {counts}, of {len(run.played)}"
