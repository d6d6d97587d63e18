"""All copies of one registration's document: the files, and what the store holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qfr.errors import RegistrationError, TrackingError
from qfr.registration import checks as checking
from qfr.registration import store as store_of
from qfr.registration.findings import Finding, Verdict, problem
from qfr.registration.record import ID_DIGITS, Record, digest_of
from qfr.registration.record_reader import is_id
from qfr.registration.run_under import record_files, unknown
from qfr.tracking.store import Store


@dataclass
class Documents:
    """The copies of one registration's document."""

    expected: str
    # `r-` and the longest prefix of the digest that anything vouches for.
    copies: list[tuple[str, bytes]] = field(default_factory=list)
    # Where each was found.


def gather_documents(
    use: str, store: Store | None, known: Sequence[store_of.Registered]
) -> tuple[Documents, store_of.Registered | None]:
    """All copies of the document, and the registration as the store holds it."""
    if not is_id(use):
        path = Path(use)
        if not path.is_file():
            raise unknown(use, [one.id for one in known])
        data = path.read_bytes()
        named = path.stem if is_id(path.stem) else f"r-{digest_of(data)}"
        documents = Documents(named, [(str(path), data)])
    else:
        documents = Documents(use)
    matches = [one for one in known if f"r-{one.digest}".startswith(documents.expected)]
    names = {
        path.stem for path in record_files() if path.stem.startswith(documents.expected[: 2 + ID_DIGITS])
    }
    names |= {one.id for one in matches}
    if len(names) > 1:
        raise RegistrationError(
            f"{use} names several registrations", hint="give more digits: " + ", ".join(sorted(names))
        )
    if is_id(use):
        documents.copies += [(str(path), path.read_bytes()) for path in record_files() if path.stem in names]
    kept = matches[0] if matches else None
    if kept is not None:
        documents.expected = f"r-{kept.digest}"
    elif is_id(use) and names and len(use) < 2 + ID_DIGITS:
        documents.expected = next(iter(names))
    if kept is None and not documents.copies:
        raise unknown(use, [one.id for one in known])
    if kept is not None and store is not None:
        try:
            documents.copies.append((f"store, run {kept.run_id}", store_of.read_document(store, kept)))
        except TrackingError as error:
            # Missing or unreadable: another copy may stand; the check of the kept files names it.
            documents.copies += [] if documents.copies else [(error.what, b"")]
    return documents, kept


def best_record(documents: Documents) -> tuple[Record | None, list[Finding]]:
    """The record to verify with: an unchanged copy before a changed one."""
    findings: list[Finding] = []
    unchanged: Record | None = None
    changed: list[tuple[str, Record]] = []
    for where, data in documents.copies:
        record, found = checking.check_document(data, documents.expected, where)
        findings += found
        if record is not None and not any(one.verdict is Verdict.problem for one in found):
            unchanged = unchanged or record
        elif record is not None:
            changed.append((where, record))
    if unchanged is not None:
        for where, record in changed:
            differing = checking.document_differences(record, unchanged)
            findings.append(
                problem(checking.RECORD, f"{where}: differs from the unchanged copy in {differing}")
            )
        return unchanged, findings
    return (changed[0][1] if changed else None), findings
