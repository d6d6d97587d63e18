"""A card, derived again from its bundle and compared line by line."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from qfr.archive.container import read_archive
from qfr.archive.restoring import restore
from qfr.closing.cards import card_report
from qfr.records import Policy
from qfr.report.card import CARD, CardRequest, files_of
from qfr.tracking.store import open_store


@dataclass(frozen=True)
class Difference:
    """One line of a card's file that is not what the bundle gives."""

    file: str
    line: int
    stands: str
    # Empty where the line is missing.
    derived: str
    # Empty where the bundle gives no such line.


def check_card(card: Path, bundle: Path) -> tuple[CardRequest, tuple[str, ...], tuple[Difference, ...]]:
    """Derive a card again from its bundle.

    Parameters
    ----------
    card : Path
        The card's Markdown; the other files of the card are compared where they stand beside it.
    bundle : Path
        What `qfr export` wrote of the sweep.

    Returns
    -------
    CardRequest, tuple of str, tuple of Difference
        What the card is of, the files that were compared, and the lines that differ.

    Raises
    ------
    ConfigError, LogError
        The card or the bundle cannot be read.
    """
    request = CardRequest.read(card)
    with tempfile.TemporaryDirectory(prefix="qfr-") as scratch:
        folder = Path(scratch, "unpacked")
        folder.mkdir()
        store = open_store(None, Path(scratch, "mlruns"), "qfr")
        restore(read_archive(bundle, folder), store)
        report = card_report(store, request.sweep, Policy(request.policy), request.margin)
    derived = files_of(report, request)
    names, found = [], list[Difference]()
    for path, data in derived.items():
        stands = card if path.name == CARD else card.parent / path
        if not stands.is_file():
            continue
        names.append(str(path))
        found += _differences(str(path), stands.read_bytes(), data)
    extra = {one.name for one in card.parent.glob("badge-*.json")} - {path.name for path in derived}
    found += [
        Difference(name, 1, (card.parent / name).read_text("utf-8", "replace").partition("\n")[0], "")
        for name in sorted(extra)
    ]
    return request, tuple(names), tuple(found)


def _differences(name: str, stands: bytes, derived: bytes) -> list[Difference]:
    ours, theirs = (data.decode("utf-8", "replace").splitlines() for data in (derived, stands))
    found = []
    for tag, a, b, c, d in SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for at in range(max(b - a, d - c)):
            found.append(
                Difference(
                    name,
                    a + at + 1,
                    theirs[a + at] if a + at < b else "",
                    ours[c + at] if c + at < d else "",
                )
            )
    return found
