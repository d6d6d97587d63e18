"""Gold paths of the benchmark's tasks, with what follows from them: writes, sources, the end of each turn."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from decimal import Decimal

from qfr.canonical import Json, canonical, sha256_hex
from qfr.errors import MachineryError
from qfr.records import Role
from qfr.world.authoring import Record, arguments_of
from qfr.world.base import GoldCall
from qfr.world.bfcl.live import Live
from qfr.world.bfcl.package import Entry, documents, tool
from qfr.world.plain import leaves, sources


@dataclass(frozen=True)
class TurnEnd:
    """What a user's turn has to come to."""

    objects: Json
    # The instances after its gold calls.
    results: tuple[str, ...]
    # Digests of what its gold calls return.


@dataclass(frozen=True)
class Gold:
    """A gold path that was played."""

    calls: tuple[GoldCall, ...]
    records: tuple[Record, ...]
    # What each call returns.
    ends: tuple[TurnEnd, ...]
    # One per message of the user.


def mark(text: str) -> str:
    """A result in a few characters."""
    return sha256_hex(text.encode("utf-8", "surrogatepass"))[:16]


def play(entry: Entry) -> Gold:
    """Play the ground truth of an entry.

    Raises
    ------
    MachineryError
        A call of it fails: the package is not the one that was published.
    """
    live, made = Live.start(entry), list[GoldCall]()
    records: list[Record] = []
    turns: list[TurnEnd] = []
    before = live.public()
    for user, calls in enumerate(entry.gold):
        results = []
        for text in calls:
            name, given, named = read_call(text)
            arguments = live.arguments(name, given, named)
            result = live.call(name, arguments)
            if result.record is None:
                raise MachineryError(f"{entry.id}: the gold call {text} is answered: {result.error}")
            after = live.public()
            taken = sources(arguments, records, " ".join(entry.turns[: user + 1]))
            made.append(GoldCall(name, canonical(arguments), taken, after != before, user))
            records.append(result.record)
            results.append(mark(result.text))
            before = after
        turns.append(TurnEnd(live.freeze(), tuple(results)))
    return Gold(tuple(made), tuple(records), tuple(turns))


def read_call(text: str) -> tuple[str, list[object], dict[str, object]]:
    """Name and arguments of a call written as Python; only literals can stand in it."""
    call = ast.parse(text.strip(), mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise MachineryError(f"{text!r} is no call of a tool")
    named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    return call.func.id, [ast.literal_eval(one) for one in call.args], named


def used_later(gold: Gold, place: int) -> set[str | Decimal]:
    """Values that a call returns and that later calls take from it."""
    mine = set(leaves(dict(gold.records[place])))
    later = [call for call in gold.calls if place in call.sources]
    return {leaf for call in later for leaf in leaves(arguments_of(call.arguments))} & mine


def lines(entry: Entry, *, turn: int | None) -> list[str]:
    """The tools of an entry as lines of a message: all at first, or those that come in a later turn."""
    missed = {name for names in entry.missed.values() for name in names}
    wanted = missed if turn is None else set(entry.missed.get(turn, ()))
    found = []
    for kind in entry.classes:
        for document in documents(kind):
            name = document["name"]
            shown = name not in wanted if turn is None else name in wanted
            if name not in entry.excluded and shown:
                one = tool(document, Role.lookup)
                told = " ".join(f"{p.name}: {p.doc}" for p in one.parameters if p.doc)
                found.append(f"- {one.signature}: {one.doc} {told}".rstrip())
    return found
