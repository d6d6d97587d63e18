"""The checks of a verification, as pure functions: the document, its contents, and the runs under it."""

from __future__ import annotations

import calendar
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from qfr.canonical import digest, sha256_hex
from qfr.errors import RegistrationError
from qfr.facts import CellFacts
from qfr.identity import cell_id, id_of_design
from qfr.records import FaultKind, Policy
from qfr.registration.differences import compared, file_difference, in_words, read_deviation
from qfr.registration.findings import Finding, RanCell, declared, good, note, problem
from qfr.registration.record import FrozenCell, Record, digest_of
from qfr.registration.record_reader import read_record

RECORD = "record"
_SHOWN = 6


def check_document(data: bytes, expected: str, where: str) -> tuple[Record | None, tuple[Finding, ...]]:
    """See that a document is the one that its id names.

    Parameters
    ----------
    data : bytes
        As found.
    expected : str
        `r-` and a prefix of its digest; empty when nothing says what it should be.
    where : str
        Where it was found.

    Returns
    -------
    tuple of (Record or None, findings)
        The record when it can be read, unchanged or not.
    """
    own = digest_of(data)
    findings: list[Finding] = []
    if expected and not f"r-{own}".startswith(expected):
        findings.append(problem(RECORD, f"{where}: changed: its SHA-256 is {own[:16]}…, not {expected[2:]}"))
    try:
        record = read_record(data, where=where)
    except RegistrationError as error:
        return None, (*findings, problem(RECORD, f"{where}: {error.what}"))
    if not findings:
        findings.append(good(RECORD, f"{where}: unchanged, SHA-256 {own}"))
    return record, tuple(findings)


def document_differences(found: Record, frozen: Record) -> str:
    """Which fields two records differ in, by name."""
    names = [name for name in vars(frozen) if getattr(found, name) != getattr(frozen, name)]
    told = []
    for name in names:
        ours, theirs = getattr(found, name), getattr(frozen, name)
        if isinstance(theirs, tuple) and len(ours) == len(theirs):
            places = [
                index for index, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]
            ]
            told += [f"{name}[{index}]" for index in places[:_SHOWN]]
        else:
            told.append(name)
    return ", ".join(told)


def check_contents(record: Record) -> tuple[Finding, ...]:
    """Derive every digest and id inside the record again."""
    findings: list[Finding] = []
    texts = [("prompt", one) for one in record.prompts]
    texts += [] if record.hypotheses is None else [("hypotheses", record.hypotheses)]
    for kind, text in texts:
        if sha256_hex(text.text.encode("utf-8")) != text.sha256:
            findings.append(problem(RECORD, f"the frozen {kind} {text.name} has not the frozen digest"))
    for suite in record.suites:
        if sha256_hex(suite.content.encode("utf-8")) != suite.sha256:
            findings.append(problem(RECORD, f"the frozen suite {suite.name} has not the frozen digest"))
    known = {text.sha256 for text in record.prompts}, {suite.sha256 for suite in record.suites}
    for cell in record.cells:
        if id_of_design(cell.design) != cell.design_id:
            findings.append(problem(RECORD, f"{cell.name}: its design does not give {cell.design_id}"))
        for key, digests in zip(("prompt_sha256", "suite_sha256"), known, strict=True):
            if cell.design.get(key) not in digests:
                findings.append(problem(RECORD, f"{cell.name}: its {key} is of nothing that was frozen"))
    if digest(dict(record.code.files)) != record.code.sha256:
        findings.append(problem(RECORD, "the digests of the code's files do not give the code's digest"))
    return tuple(findings) or (
        good(RECORD, f"prompts, suites and {len(record.cells)} designs derived again"),
    )


def check_code(found: Mapping[str, str], record: Record, *, allowed: bool) -> tuple[Finding, ...]:
    """Compare the code that verifies with the frozen one; `allowed` makes a difference a note."""
    differing = compared(found, record.code.files)
    commit = record.code.commit[:12] or "no commit"
    if not differing:
        return (good("code", f"as frozen ({len(found)} files, {commit})"),)
    names = ", ".join(one.key for one in differing[:_SHOWN])
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    say = note if allowed else problem
    return (say("code", f"the code that verifies is not the frozen one ({commit}): {names}{more}"),)


def check_prompts(present: Mapping[str, bytes | None], record: Record) -> tuple[Finding, ...]:
    """Compare the prompt files of today with the frozen ones; None stands for a file that is not there.

    A prompt that is made from a file is as frozen where the file is: its rules are part of the frozen code.
    """
    findings: list[Finding] = []
    for text in record.prompts:
        file = text.base_file or text.name
        data = present.get(file)
        if data is None:
            findings.append(note(f"prompt {text.name}", f"there is no {file} in prompts/ any more"))
        elif text.base_file is not None:
            same = sha256_hex(data) == text.base_sha256
            told = f"made from {file}, which is {'as frozen' if same else 'not the frozen file'}"
            findings.append((good if same else problem)(f"prompt {text.name}", told))
        elif data != text.text.encode("utf-8"):
            at = _first_difference(data, text.text.encode("utf-8"))
            findings.append(problem(f"prompt {text.name}", f"not the frozen bytes, from byte {at} on"))
        else:
            findings.append(good(f"prompt {text.name}", "as frozen"))
    return tuple(findings)


def check_presence(record: Record, runs: Sequence[RanCell]) -> tuple[Finding, ...]:
    """Every planned cell once; every other run under the registration with a declared reason."""
    by_design: dict[str, list[RanCell]] = defaultdict(list)
    for run in runs:
        if run.complete:
            by_design[run.facts.design_id].append(run)
    findings: list[Finding] = []
    for cell in record.cells:
        have = by_design.get(cell.design_id, [])
        if len(have) > 1:
            ids = ", ".join(run.run_id for run in have)
            findings.append(problem(cell.name, f"there {len(have)} times under this registration: {ids}"))
        elif not have:
            unfinished = [run for run in runs if run.facts.design_id == cell.design_id]
            state = f"unfinished ({unfinished[0].status})" if unfinished else "missing: never run"
            findings.append(problem(cell.name, f"{state} under this registration"))
    if not findings:
        findings.append(good("cells", f"all {len(record.cells)} planned cells are there, each once"))
    planned = {cell.design_id for cell in record.cells}
    findings += [_unplanned(run, record) for run in runs if run.facts.design_id not in planned]
    return tuple(findings)


def _unplanned(run: RanCell, record: Record) -> Finding:
    subject = f"{run.facts.name}, run {run.run_id}"
    told = read_deviation(run.facts.deviation)
    if told is None:
        return problem(subject, "carries the registration and is no planned cell")
    keys = "; ".join(in_words(one.shortened, record.cells) for one in told.differences[:_SHOWN])
    return declared(subject, f"deviates, as declared: {told.reason} ({keys})")


def check_run(record: Record, cell: FrozenCell, run: RanCell) -> tuple[Finding, ...]:
    """See that a run is the planned cell, made after the registration, with frozen prompt, suite and code."""
    subject, facts = f"{cell.name}, run {run.run_id}", run.facts
    findings = [*run.findings, *_times(record, subject, run)]
    measured = cell_id(
        facts.design_id,
        model_sha256=facts.model_sha256,
        library_sha256=facts.library_sha256,
        device=facts.device,
        offloaded_layers=facts.offloaded_layers,
        n_ctx=facts.n_ctx,
    )
    if measured != facts.cell_id:
        findings.append(problem(subject, f"what it says of itself gives {measured}, not {facts.cell_id}"))
    for name, data, key in (
        ("prompt.md", run.prompt, "prompt_sha256"),
        ("suite.json", run.suite, "suite_sha256"),
    ):
        if data is not None and sha256_hex(data) != cell.design[key]:
            findings.append(problem(subject, f"{name} is not the frozen one"))
    told = read_deviation(facts.deviation)
    say = problem if told is None else declared
    reason = "" if told is None else f" (declared: {told.reason})"
    findings += [say(subject, text + reason) for text in _unlike(record, facts)]
    return tuple(findings)


def check_clean(cell: FrozenCell, run: RanCell, clean: RanCell | None) -> tuple[Finding, ...]:
    """See that a fault run was made on the clean pass that was registered with it."""
    if cell.fault == FaultKind.none or clean is None or run.clean_log_sha256 == clean.log_sha256:
        return ()
    text = f"its clean pass is log {run.clean_log_sha256[:12]}…, the registered one {clean.log_sha256[:12]}…"
    return (problem(f"{cell.name}, run {run.run_id}", text),)


def check_episodes(
    cell: FrozenCell, run: RanCell, clean: RanCell | None, sites: Mapping[str, int]
) -> tuple[Finding, ...]:
    """See that the log holds every episode that the design asks for, once.

    Parameters
    ----------
    sites : mapping of str to int
        Number of fault sites of every task of the suite, for the cell's kind of fault.
    """
    if cell.fault == FaultKind.none:
        wanted = {(task, -1) for task in sites}
    else:
        passed = set(sites) if cell.gate == "none" or clean is None else set(clean.certified[Policy.tolerant])
        wanted = {(task, site) for task in sites if task in passed for site in range(sites[task])}
    subject, played = f"{cell.name}, run {run.run_id}", set(run.played)
    findings: list[Finding] = []
    if len(run.played) != len(played):
        findings.append(problem(subject, f"its log holds {len(run.played) - len(played)} episodes twice"))
    for word, keys in (("lacks", wanted - played), ("should not hold", played - wanted)):
        if keys:
            shown = ", ".join(
                f"{task}{'' if site < 0 else f' site {site}'}" for task, site in sorted(keys)[:_SHOWN]
            )
            findings.append(problem(subject, f"its log {word} {len(keys)} episodes: {shown}"))
    return tuple(findings)


def _times(record: Record, subject: str, run: RanCell) -> list[Finding]:
    registered = calendar.timegm(time.strptime(record.registered, "%Y-%m-%dT%H:%M:%SZ"))
    findings = []
    if run.started / 1000 < registered:
        findings.append(problem(subject, "was started before the registration"))
    elif run.first_ended is not None and run.first_ended < registered:
        findings.append(problem(subject, "holds episodes that were played before the registration"))
    return findings


def _unlike(record: Record, facts: CellFacts) -> list[str]:
    """What of a run's model file, build and code is not as frozen."""
    found = []
    if facts.code_sha256 != record.code.sha256:
        found.append(
            f"played by other code (digest {facts.code_sha256[:12] or 'unknown'}, commit "
            f"{facts.git_commit[:12] or 'none'}; frozen {record.code.sha256[:12]}, commit "
            f"{record.code.commit[:12] or 'none'})"
        )
    # A derived file is frozen by its source, whose digest the derived file's own does not show.
    if facts.model_source not in ("scripted", "server", "derived", "requantized"):
        file = file_difference(record, facts.model, facts.quant, facts.model_sha256)
        found += [] if file is None else [f"another {file}"]
    ran, frozen = facts.llama_commit.removesuffix("-dirty"), record.llama_commit
    if frozen and ran and not (frozen.startswith(ran) or ran.startswith(frozen)):
        found.append(f"llama.cpp commit: found {ran[:12]}, frozen {frozen[:12]}")
    return found


def _first_difference(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
