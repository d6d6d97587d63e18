"""Finds a world by name: built in, an entry point of the group `qfr.worlds`, or `module:factory`.

A world from outside is guarded: what goes wrong in its code is told with file and line, and ends the cell as
a machinery failure instead of the process.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Literal

from qfr.canonical import Json
from qfr.errors import ConfigError, MachineryError, QfrError, did_you_mean
from qfr.world import agentdojo, bfcl, ledger, orders, tasks
from qfr.world.base import Habits, Outcome, Site, State, Suite, Task, Tool, Transcript, Verdict, World

GROUP = "qfr.worlds"
Factory = Callable[[Suite], World]
BUILT_IN: Mapping[str, Factory] = {
    orders.NAME: orders.of_suite,
    ledger.NAME: ledger.of_suite,
    bfcl.NAME: bfcl.of_suite,
    agentdojo.NAME: agentdojo.of_suite,
}
_FAMILIES: Mapping[str, tuple[str, ...]] = {
    orders.NAME: tasks.FAMILIES,
    ledger.NAME: ledger.FAMILIES,
    bfcl.NAME: bfcl.FAMILIES,
    agentdojo.NAME: agentdojo.FAMILIES,
}
_OURS = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Worlds that a plain name finds: built in, or from an installed package."""
    return (*BUILT_IN, *sorted(point.name for point in metadata.entry_points(group=GROUP)))


def build_world(name: str, suite: Suite) -> World:
    """Generate the tasks of a suite.

    Parameters
    ----------
    name : str
        As in `suite.world`.
    suite : Suite

    Raises
    ------
    ConfigError
        There is no such world, it refuses the suite, or its code fails.
    """
    if name in BUILT_IN:
        return BUILT_IN[name](suite)
    factory = _factory(name)
    with _Foreign(name, ConfigError):
        world = factory(suite)
        source = inspect.getsourcefile(inspect.unwrap(factory))
    if not world.tasks:
        raise ConfigError(f"the world {name} made no task of this suite", where="suite.families")
    return GuardedWorld(world, name, _digest(source))


def default_families(name: str) -> tuple[str, ...]:
    """Families that a world says it has, empty where it does not say."""
    told = _FAMILIES.get(name)
    return tuple(told if told is not None else getattr(_factory(name), "families", ()))


def _factory(name: str) -> Factory:
    points = [point for point in metadata.entry_points(group=GROUP) if point.name == name]
    if points:
        with _Foreign(name, ConfigError):
            return _callable(points[0].load(), name)
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(
            f"there is no world {name!r}" + did_you_mean(name, names()),
            where="suite.world",
            hint=f"one of {', '.join(names())}, or module:factory for a world of your own",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with _Foreign(name, ConfigError):
        known = find_spec(module) is not None
    if not known:
        raise ConfigError(
            f"there is no Python module {module!r}",
            where=f"suite.world={name}",
            hint=f"it is looked for in the installed packages and in {here}",
        )
    with _Foreign(name, ConfigError):
        loaded = importlib.import_module(module)
    if not hasattr(loaded, attribute):
        raise ConfigError(
            f"module {module!r} has no {attribute!r}" + did_you_mean(attribute, vars(loaded)),
            where=f"suite.world={name}",
        )
    return _callable(getattr(loaded, attribute), name)


def _callable(given: object, name: str) -> Factory:
    if not callable(given):
        raise ConfigError(
            f"it is {type(given).__name__}, which cannot be called",
            where=f"suite.world={name}",
            hint="name a class or a function that takes a Suite and returns a world",
        )
    return given  # a World is structural: `qfr world check` tries every method


def _digest(source: str | None) -> str:
    return hashlib.sha256(Path(source).read_bytes()).hexdigest() if source else ""


class _Foreign:
    """Tells what foreign code raises as an error of ours, with the file and line in that code.

    It stands at the border to code that nobody here has seen, so it takes every kind of exception.
    """

    def __init__(self, name: str, kind: type[QfrError]) -> None:
        self._name, self._kind = name, kind

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if error is None or isinstance(error, QfrError) or not isinstance(error, Exception):
            return False
        raise self._kind(
            f"{type(error).__name__}: {str(error) or 'no message'}",
            where=f"world {self._name}, {place_of(trace)}",
            hint="mend the world; `qfr world check` tries it as a whole",
        ) from error


def place_of(trace: TracebackType | None) -> str:
    """File and line of the last frame outside this package."""
    frames = traceback.extract_tb(trace)
    outside = [frame for frame in frames if not Path(frame.filename).is_relative_to(_OURS)] or frames
    return f"{Path(outside[-1].filename).name} line {outside[-1].lineno}"


@dataclass(frozen=True)
class GuardedWorld:
    """A world from outside, whose errors are told as machinery failures. Implements `World`."""

    inner: World
    found_as: str
    # As in `suite.world`.
    source_sha256: str
    # Of the file that its factory stands in: other code is another suite.

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def version(self) -> str:
        return f"{self.inner.version} {self.source_sha256[:16]}"

    @property
    def plain(self) -> bool:
        return self.inner.plain

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self.inner.tasks

    @property
    def _guard(self) -> _Foreign:
        return _Foreign(self.found_as, MachineryError)

    def tool(self, name: str) -> Tool | None:
        with self._guard:
            return self.inner.tool(name)

    def start(self, task: Task) -> State:
        with self._guard:
            return self.inner.start(task)

    def call(
        self, task: Task, state: State, tool: str, arguments: Mapping[str, Json]
    ) -> tuple[State, Outcome]:
        with self._guard:
            return self.inner.call(task, state, tool, arguments)

    def heard(self, task: Task, state: State) -> State:
        heard = getattr(self.inner, "heard", None)
        # A world without several messages of the user need not have it.
        with self._guard:
            return state if heard is None else heard(task, state)

    def check(self, task: Task, state: State, answer: Json) -> Verdict:
        with self._guard:
            return self.inner.check(task, state, answer)

    def displaced(self, task: Task, site: Site) -> Mapping[str, Json]:
        with self._guard:
            return self.inner.displaced(task, site)

    def content(self, task: Task) -> str:
        with self._guard:
            return self.inner.content(task)

    def next_turn(self, task: Task, transcript: Transcript, habits: Habits) -> str:
        with self._guard:
            return self.inner.next_turn(task, transcript, habits)
