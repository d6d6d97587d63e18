"""The registrations that the cells of a report ran under, found again for its section on what was planned."""

from __future__ import annotations

from qfr.errors import RegistrationError
from qfr.registration.run_under import find_record
from qfr.registration.store import runs_under
from qfr.report.content.registration_status import Frozen, Registrations
from qfr.tracking.reading.reader import Reading
from qfr.tracking.reading.search import is_complete
from qfr.tracking.store import Store
from qfr.tracking.writing.sweep import find_sweep


def registrations_of(store: Store, reading: Reading, sweep: str | None) -> Registrations:
    """Find the registrations of a reading's cells, and of the sweep that is reported.

    Raises
    ------
    TrackingError
        The store does not answer.
    """
    tags = {} if sweep is None else find_sweep(store, sweep).data.tags
    named = [tags.get("qfr.registration", "")]
    named += [cell.facts.registration for cell in (*reading.cells, *reading.unfinished)]
    found: list[Frozen] = []
    lost: list[str] = []
    for name in dict.fromkeys(name for name in named if name):
        try:
            record = find_record(name, store.tracking_uri, store.root).record
        except RegistrationError as error:
            lost.append(f"{name}: {error}".partition("\n")[0])
            continue
        finished = {one.tag("design_id") for one in runs_under(store, name) if is_complete(one.run)}
        deviation = tags.get("qfr.deviation", "") if name == named[0] else ""
        found.append(Frozen(name, record, frozenset(finished), deviation))
    return Registrations(tuple(found), tuple(lost))
