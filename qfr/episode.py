"""One attempt at one task: THE loop. No files, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from qfr.config import ExecutorKind
from qfr.engine.base import Ask, Engine, EngineInfo, StreamEngine
from qfr.errors import EngineError
from qfr.protocol import (
    ParsedTurn,
    Problem,
    observe_end,
    observe_fault,
    observe_problem,
    observe_record,
    read_turn,
)
from qfr.records import (
    SCHEMA_VERSION,
    Channel,
    Ending,
    Episode,
    FaultKind,
    Generation,
    Observation,
    Role,
    StopReason,
    Turn,
)
from qfr.world.base import Found, Site, Task, World, task_tools
from qfr.world.faults import Failed, Injector, ScheduledFault


@dataclass(frozen=True)
class Rules:
    """What an episode is played by."""

    executor: ExecutorKind
    step_budget: int
    # Model turns at most.
    error_budget: int
    # Failed calls of the agent at most, cumulative: the episode ends when there are more.
    max_tokens: int
    # Generated tokens per turn at most.
    fault_code: str
    fault_message: str
    trial: int


@dataclass(frozen=True)
class Message:
    """What an episode sends to the model."""

    text: str
    opening: bool
    # The task's text, which opens the transcript; else an observation.


# An episode that is being played: it sends messages, gets the model's turns, and ends in its record.
Script = Generator[Message, Generation, Episode]


@dataclass(frozen=True)
class Piece:
    """One episode to play."""

    task: Task
    site: Site | None
    # Where the fault is injected; None for a clean episode.


class Scripts:
    """Episodes of one prompt on one world, without the engine that answers them.

    Parameters
    ----------
    world : World
    system : str
        The prompt's exact text.
    rules : Rules
    info
        Tells what the engine says of itself.
    """

    def __init__(self, world: World, system: str, rules: Rules, info: Callable[[], EngineInfo]) -> None:
        self.world = world
        self.system = system
        self.rules = rules
        self._info = info

    def script(self, cell_id: str, kind: FaultKind, piece: Piece) -> Script:
        """THE loop: one episode from its start."""
        task, site = piece.task, piece.site
        rules, tools = self.rules, task_tools(self.world, task)
        fault = None
        if site is not None:
            fault = ScheduledFault(kind, site, rules.fault_code, rules.fault_message)
        injector = Injector(self.world, task, fault)
        turns: list[Turn] = []
        errors, answer, ending = 0, None, None
        generation = yield Message(task.text, opening=True)
        while ending is None:
            if generation.stop is StopReason.context and not generation.token_ids:
                if not turns:
                    raise self._no_room(task)
                ending = Ending.out_of_context
                break
            injector.saw(len(turns))
            parsed = read_turn(
                generation.text,
                tools,
                repair=rules.executor is ExecutorKind.tolerant,
                thinking=bool(self._info().thinking),
            )
            observation = self._observe(parsed, injector, len(turns))
            turns.append(Turn(len(turns), generation, parsed.parse, parsed.call, observation))
            errors += observation.channel is not None
            answer = parsed.submitted
            ending = self._ending(parsed, generation, len(turns), errors)
            if ending is None:
                generation = yield Message(observation.text, opening=False)
        return Episode(
            schema=SCHEMA_VERSION,
            cell_id=cell_id,
            task=task.id,
            family=task.family,
            fault=kind,
            trial=rules.trial,
            trace=injector.trace(),
            turns=tuple(turns),
            ending=ending,
            answer=answer,
            gold=format(task.answer, "f"),
            errors=errors,
        )

    def _no_room(self, task: Task) -> EngineError:
        """Not even the task could be shown: nothing is learned of the agent, so it is no zero."""
        size = self._info().n_ctx
        return EngineError(
            f"the system message and task {task.id} do not fit into the context of {size} tokens",
            hint="raise engine.n_ctx, or leave it out: then it is what the suite needs",
        )

    def _observe(self, parsed: ParsedTurn, injector: Injector, turn: int) -> Observation:
        """Run the turn's call."""
        if parsed.problem is not None:
            return observe_problem(parsed.problem)
        assert parsed.tool is not None
        assert parsed.call is not None
        if parsed.tool.role is not Role.lookup:
            return observe_end()
        answered = injector.answer(turn, parsed.call, parsed.arguments)
        if isinstance(answered.outcome, Found):
            return observe_record(answered.outcome.record, injected=answered.injected)
        if isinstance(answered.outcome, Failed):
            return observe_fault(answered.outcome.code, answered.outcome.message)
        return observe_problem(Problem(Channel.entity, answered.outcome.message))

    def _ending(self, parsed: ParsedTurn, generation: Generation, turns: int, errors: int) -> Ending | None:
        """How the episode ends with this turn, None when it goes on. A terminal call comes first."""
        if parsed.tool is not None and parsed.tool.role is Role.submit:
            return Ending.submitted
        if parsed.tool is not None and parsed.tool.role is Role.report:
            return Ending.reported_failure
        if generation.stop is StopReason.context:
            return Ending.out_of_context
        if errors > self.rules.error_budget:
            return Ending.out_of_errors
        return Ending.out_of_steps if turns >= self.rules.step_budget else None


class Episodes:
    """Plays episodes of one prompt on one world with one engine, one after the other.

    Parameters
    ----------
    engine : Engine
    world : World
    system : str
        The prompt's exact text.
    rules : Rules
    """

    def __init__(self, engine: Engine, world: World, system: str, rules: Rules) -> None:
        self.engine = engine
        self.world = world
        self._scripts = Scripts(world, system, rules, lambda: engine.info)

    def play(self, cell_id: str, task: Task, kind: FaultKind, site: Site | None) -> Episode:
        """Play one episode from its start.

        Raises
        ------
        MachineryError
            The engine broke. There is no episode then: a broken machine is not a failed agent.
        """
        script = self._scripts.script(cell_id, kind, Piece(task, site))
        limit = self._scripts.rules.max_tokens
        message = next(script)
        while True:
            if message.opening:
                generation = self.engine.begin(self._scripts.system, message.text, limit)
            else:
                generation = self.engine.reply(message.text, limit)
            try:
                message = script.send(generation)
            except StopIteration as end:
                return recorded(end)


class Together:
    """Plays episodes of one prompt on one world side by side, on an engine of several streams.

    Parameters
    ----------
    engine : StreamEngine
    streams : int
        Streams of the engine.
    world : World
    system : str
        The prompt's exact text.
    rules : Rules
    """

    def __init__(self, engine: StreamEngine, streams: int, world: World, system: str, rules: Rules) -> None:
        self.engine = engine
        self.world = world
        self.streams = streams
        self._scripts = Scripts(world, system, rules, lambda: engine.info)

    def play(self, cell_id: str, kind: FaultKind, pieces: Sequence[Piece]) -> tuple[Episode, ...]:
        """Play a wave: each stream takes the next episode as soon as its own has ended.

        Returns
        -------
        tuple of Episode
            In the order of `pieces`.

        Raises
        ------
        MachineryError
            The engine broke: there is no episode of this wave then.
        """
        waiting, playing = deque(enumerate(pieces)), dict[int, tuple[int, Script]]()
        done: dict[int, Episode] = {}
        free, asks = list(range(self.streams)), list[Ask]()
        while True:
            for stream in free:
                if waiting:
                    place, piece = waiting.popleft()
                    script = self._scripts.script(cell_id, kind, piece)
                    playing[stream] = (place, script)
                    asks.append(self._ask(stream, next(script)))
            if not playing:
                return tuple(done[place] for place in range(len(pieces)))
            answered = self.engine.advance(tuple(asks))
            free, asks = [], []
            for answer in answered:
                place, script = playing[answer.stream]
                try:
                    asks.append(self._ask(answer.stream, script.send(answer.generation)))
                except StopIteration as end:
                    done[place] = recorded(end)
                    del playing[answer.stream]
                    free.append(answer.stream)

    def _ask(self, stream: int, message: Message) -> Ask:
        system = self._scripts.system if message.opening else None
        return Ask(stream, system, message.text, self._scripts.rules.max_tokens)


def recorded(end: StopIteration) -> Episode:
    """What a script ended in."""
    if not isinstance(end.value, Episode):
        raise EngineError("an episode ended without a record")
    return end.value
