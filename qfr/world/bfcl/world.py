"""The world itself: the benchmark's objects as a state, its own checks as the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import cast

import numpy as np

from qfr.canonical import Json, canonical
from qfr.errors import ConfigError
from qfr.records import Role, Tool
from qfr.world.authoring import REPORT, BaseWorld, Record, arguments_of
from qfr.world.base import (
    Found,
    GoldCall,
    Outcome,
    Refused,
    Site,
    State,
    Suite,
    Task,
    Verdict,
    check_families,
    check_options,
    check_version,
    effects,
    heard_until,
)
from qfr.world.bfcl import package
from qfr.world.bfcl.live import Live
from qfr.world.bfcl.package import FAMILIES, NAME, VERSION, Entry
from qfr.world.bfcl.tasks import Gold, TurnEnd, lines, mark, play, used_later
from qfr.world.plain import TheVery, another

_FULL = "There is no room for more."


def of_suite(suite: Suite) -> BfclWorld:
    """Take tasks of the benchmark: of each family as many as asked for, in an order that the seed draws.

    Raises
    ------
    ConfigError
        The package is not installed, or has no such family, option or number of tasks.
    """
    check_version(suite, (1,))
    check_options(suite, ())
    check_families(suite, FAMILIES, NAME)
    package.root()
    if suite.seed < 0:
        raise ConfigError(f"{suite.seed} is negative", where="suite.seed", hint="use 0 or more")
    taken: dict[str, Entry] = {}
    for place, family in enumerate(FAMILIES):
        count, known = suite.families.get(family, 0), package.entries(family)
        if count > len(known):
            raise ConfigError(
                f"{family}: {count:,} tasks, of which there are {len(known)}", where="suite.families"
            )
        for at in np.random.default_rng([suite.seed, place]).permutation(len(known))[:count].tolist():
            number = int(known[at].id.rpartition("_")[2])
            taken[f"{family}-{number:03d}"] = known[at]
    return BfclWorld(suite, taken)


class BfclWorld(BaseWorld):
    """A selection of the benchmark's tasks.

    The state holds a digest of each class's public attributes, which is what the benchmark compares, and,
    under names with an underscore, the objects themselves, what was read, and how the user's turns ended.
    """

    name = NAME
    version = f"1 bfcl-eval {VERSION}"
    families = FAMILIES
    ends: tuple[Tool, ...] = (REPORT,)

    def __init__(self, suite: Suite, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        played = {id_: play(entry) for id_, entry in entries.items()}
        self._writing = {call.tool for gold in played.values() for call in gold.calls if call.writes}
        # What the scripted agent asks for again at each turn; a state is a value, so answers can be kept.
        self._ends = lru_cache(maxsize=64)(self._ends_of)
        self._begun = lru_cache(maxsize=64)(self._start)
        self._proved = lru_cache(maxsize=64)(self._proofs)
        self._answered = lru_cache(maxsize=256)(self._answer)
        super().__init__(suite, tuple(self._task(id_, gold) for id_, gold in played.items()))

    def _ends_of(self, task_id: str) -> tuple[TurnEnd, ...]:
        return self._gold(task_id).ends

    def _gold(self, task_id: str) -> Gold:
        return play(self._entries[task_id])

    def _task(self, id_: str, gold: Gold) -> Task:
        entry = self._entries[id_]
        first, *later = entry.turns
        names = [
            document["name"]
            for kind in entry.classes
            for document in package.documents(kind)
            if document["name"] not in entry.excluded
        ]
        # Families share texts; the id in the first line tells their tasks apart.
        return Task(
            id=id_,
            family=entry.family,
            text="\n".join([f"Tools of task {id_}:", *lines(entry, turn=None), "", first]),
            tools=(*names, *(tool.name for tool in self.ends)),
            gold_calls=gold.calls,
            answer=None,
            follow_ups=tuple(
                "\n".join([*lines(entry, turn=turn), text]) for turn, text in enumerate(later, start=1)
            ),
        )

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """All tools of the classes that the suite needs; a tool writes when a gold call of it does."""
        kinds = dict.fromkeys(kind for entry in self._entries.values() for kind in entry.classes)
        documents = [document for kind in kinds for document in package.documents(kind)]
        roles = [Role.write if one["name"] in self._writing else Role.lookup for one in documents]
        return (*map(package.tool, documents, roles), *self.ends)

    def start(self, task: Task) -> State:
        return self._begun(task.id)

    def _start(self, task_id: str) -> State:
        live = Live.start(self._entries[task_id])
        return {
            **live.public(),
            "_objects": live.freeze(),
            "_seen": {},
            "_user": Decimal(0),
            "_called": False,
            "_failed": "",
        }

    def call(
        self, task: Task, state: State, tool: str, arguments: Mapping[str, Json]
    ) -> tuple[State, Outcome]:
        assert state is not None
        return self._answered(task.id, TheVery(state), tool, canonical(arguments))

    def _answer(self, task_id: str, given: TheVery, tool: str, arguments: str) -> tuple[State, Outcome]:
        state = given.state
        live = Live.thaw(state["_objects"])
        result = live.call(tool, arguments_of(arguments))
        objects = live.freeze()
        if live.full(objects):
            return {**state, "_called": True}, Refused(_FULL)
        after = {**state, **live.public(), "_objects": objects, "_called": True}
        if result.record is None:
            return after, Refused(result.error)
        seen, told = cast("dict[str, Decimal]", state["_seen"]), mark(result.text)
        if any(told in end.results for end in self._ends(task_id)):
            after["_seen"] = {**seen, told: seen.get(told, Decimal(0)) + 1}
        return after, Found(result.record)

    def heard(self, task: Task, state: State) -> State:
        """The user's turn is over: it is judged, as the benchmark judges each turn."""
        assert state is not None
        return {
            **state,
            "_user": cast("Decimal", state["_user"]) + 1,
            "_called": False,
            "_failed": state["_failed"] or self._wrong(task, state),
        }

    def check(self, task: Task, state: State, answer: Json) -> Verdict:
        assert state is not None
        last = len(task.follow_ups)
        if int(cast("Decimal", state["_user"])) < last:
            return Verdict(False, "the user had more to say")
        failed = str(state["_failed"] or self._wrong(task, state))
        return Verdict(not failed, failed)

    def _wrong(self, task: Task, state: Mapping[str, Json]) -> str:
        """What the benchmark's checks say of the turn that is ending, empty when nothing."""
        turn = int(cast("Decimal", state["_user"]))
        end = self._ends(task.id)[turn]
        if not end.results:
            return ""
        if not state["_called"]:
            return f"no call in turn {turn}"
        checkers = package.checkers()
        mine, gold = Live.thaw(state["_objects"]), Live.thaw(end.objects)
        if not checkers.state(dict(mine.instances), dict(gold.instances))["valid"]:
            return f"another state after turn {turn}"
        seen = [
            told
            for told, count in cast("dict[str, Decimal]", state["_seen"]).items()
            for _ in range(int(count))
        ]
        if not checkers.response(seen, list(end.results), turn)["valid"]:
            return f"not all was read by turn {turn}"
        return ""

    def displaced(self, task: Task, site: Site) -> Record:
        """The true record with other values where later gold calls take theirs from it."""
        gold = self._gold(task.id)
        used = used_later(gold, site.call)
        return {name: another(value, used) for name, value in gold.records[site.call].items()}

    def content(self, task: Task) -> str:
        entry = self._entries[task.id]
        return canonical([entry.id, self._ends(task.id)[-1].results, effects(self.start(task))])

    def proofs(self, task: Task) -> tuple[GoldCall | None, ...]:
        """Per gold call that writes, a lookup without arguments whose record the write changes."""
        return self._proved(task)

    def _proofs(self, task: Task) -> tuple[GoldCall | None, ...]:
        state, user, found = self.start(task), 0, list[GoldCall | None]()
        plain = [name for name in task.tools if self._plain_lookup(name)]
        for call in task.gold_calls:
            state, user = heard_until(self, task, state, user, call.user)
            before = state
            state, _ = self.call(task, state, call.tool, arguments_of(call.arguments))
            shown = (name for name in plain if call.writes and self._shows(task, name, before, state))
            name = next(shown, None)
            found.append(None if name is None else GoldCall(name, "{}", ()))
        return tuple(found)

    def _plain_lookup(self, name: str) -> bool:
        tool = self.tool(name)
        return (
            tool is not None and tool.role is Role.lookup and not any(one.required for one in tool.parameters)
        )

    def _shows(self, task: Task, name: str, before: State, after: State) -> bool:
        """Whether a lookup tells the two states apart, and gives the same when it is asked again."""
        first = self.call(task, before, name, {})[1]
        state, second = self.call(task, after, name, {})
        again = self.call(task, state, name, {})[1]
        return isinstance(first, Found) and isinstance(second, Found) and first != second == again
