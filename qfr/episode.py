"""One attempt at one task: THE loop. No files, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from qfr.canonical import canonical, read_json
from qfr.config import ExecutorKind, Thinking
from qfr.engine.base import Ask, Engine, EngineInfo, Native, Past, StreamEngine
from qfr.engine.native.turn import read, schemas
from qfr.errors import EngineError
from qfr.protocol import (
    ParsedTurn,
    Problem,
    is_message,
    not_read,
    observe_cut,
    observe_end,
    observe_fault,
    observe_problem,
    observe_record,
    observe_reminder,
    observe_user,
    plainly,
    read_answer,
    read_call,
    read_turn,
    with_repair,
)
from qfr.records import (
    ACTING_SCHEMA_VERSION,
    NATIVE_SCHEMA_VERSION,
    SCHEMA_VERSION,
    Acts,
    Channel,
    Ending,
    Episode,
    FaultKind,
    Generation,
    Observation,
    ParseKind,
    Role,
    Step,
    StopReason,
    Turn,
)
from qfr.world.base import (
    Found,
    Json,
    Refused,
    Site,
    State,
    Task,
    World,
    gold_text,
    state_digest,
    talks,
    task_tools,
)
from qfr.world.faults import Answered, Cut, Failed, Injector, ScheduledFault

# Requests to repair a failed call that an episode gets at most (Jang 2026: three a run).
MOST_REPAIRS = 3


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
    fault_times: int = 1
    # Failures of the call at the site (er).
    fault_retry_after: int = 1
    # Turns that a tool has to be left alone (rl).
    thinking: Thinking = Thinking.template
    # Native: how thoughts of earlier turns are shown.


@dataclass(frozen=True)
class Message:
    """What an episode sends to the model."""

    text: str | Past
    # Native: what the turn before is told.
    opening: bool
    # The task's text, which opens the transcript; else an observation.
    native: Native | None = None
    # Where it opens an episode that is played natively.


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
        task, rules = piece.task, self.rules
        injector = Injector(self.world, task, self._scheduled(kind, piece.site))
        course = _Course(self.world, task, rules, injector, self._info)
        acts = None if self.world.plain else _Acting(injector.state)
        ending = None
        generation = yield Message(task.text, opening=True, native=course.native)
        while ending is None:
            if generation.stop is StopReason.context and not generation.token_ids:
                if not course.turns:
                    raise self._no_room(task)
                ending = Ending.out_of_context
                break
            ending = course.take(generation)
            if acts is not None:
                acts.note(injector.state)
            if ending is None:
                generation = yield Message(course.told, opening=False)
        return Episode(
            schema=schema_version(rules.executor, plain=acts is None),
            cell_id=cell_id,
            task=task.id,
            family=task.family,
            fault=kind,
            trial=rules.trial,
            trace=injector.trace(),
            turns=tuple(course.turns),
            ending=ending,
            answer=course.answer,
            gold=gold_text(task.answer),
            errors=course.errors,
            acts=None if acts is None else self._judged(task, acts, injector, course.answer, ending),
        )

    def replay(self, episode: Episode, site: Site | None) -> Episode:
        """Play an episode again from its logged turns: every call is made, and no model is asked.

        Returns
        -------
        Episode
            Equal to `episode`, with answers, states and verdict, when world, rules and log belong together.

        Raises
        ------
        EngineError
            The episode does not end with its logged turns.
        """
        task = next(task for task in self.world.tasks if task.id == episode.task)
        script = self.script(episode.cell_id, episode.fault, Piece(task, site))
        next(script)
        # Nothing could be generated any more where the context was full.
        full = Generation("", (), StopReason.context, 0, (), "", control_text=False)
        for generation in (*(turn.generation for turn in episode.turns), full):
            try:
                script.send(generation)
            except StopIteration as end:
                return recorded(end)
        raise EngineError(f"task {task.id}: played again, the episode does not end with its logged turns")

    def _scheduled(self, kind: FaultKind, site: Site | None) -> ScheduledFault | None:
        rules = self.rules
        if site is None:
            return None
        return ScheduledFault(
            kind, site, rules.fault_code, rules.fault_message, rules.fault_times, rules.fault_retry_after
        )

    def _judged(
        self, task: Task, acts: _Acting, injector: Injector, answer: str | None, ending: Ending
    ) -> Acts:
        """What the world says of the end; only an agent that ended the task itself can be right."""
        right = False
        if ending is Ending.submitted:
            submitted = _value(task, answer)
            right = self.world.check(task, injector.state, submitted).right
        return Acts(acts.digests[0], tuple(acts.digests[1:]), right, injector.duplicate_writes)

    def _no_room(self, task: Task) -> EngineError:
        """Not even the task could be shown: nothing is learned of the agent, so it is no zero."""
        size = self._info().n_ctx
        return EngineError(
            f"the system message and task {task.id} do not fit into the context of {size} tokens",
            hint="raise engine.n_ctx, or leave it out: then it is what the suite needs",
        )


class _Course:
    """An episode in its course: what its turns came to so far."""

    def __init__(
        self, world: World, task: Task, rules: Rules, injector: Injector, info: Callable[[], EngineInfo]
    ) -> None:
        self._task, self._rules, self._injector, self._info = task, rules, injector, info
        self._tools = task_tools(world, task)
        self._said = 0 if talks(world, task) else None
        # Plain messages so far, where the task has several messages of its user.
        self._reminded = False
        self._repairs = 0
        native = rules.executor is ExecutorKind.native
        self.native = Native(schemas(self._tools), rules.thinking) if native else None
        self.turns: list[Turn] = []
        self.errors = 0
        self.answer: str | None = None
        self.told: str | Past = ""
        # What the model is shown next.

    def take(self, generation: Generation) -> Ending | None:
        """Act on a turn; how the episode ends with it, None when it goes on."""
        self._injector.saw(len(self.turns))
        if self.native is not None:
            return self._take_native(generation)
        if self._said is not None and is_message(generation.text):
            return self._message(generation, generation.text, self._said)
        parsed = read_turn(
            generation.text,
            self._tools,
            repair=self._rules.executor is not ExecutorKind.strict_feedback,
            thinking=bool(self._info().thinking),
        )
        step = Step(parsed.call, self._repairing(self._observe(parsed)))
        return self._called(generation, parsed.parse, (step,), parsed)

    def _take_native(self, generation: Generation) -> Ending | None:
        """Act on a turn in the template's own form: its calls in order, up to one that ends the task."""
        seen = read(generation.text, self._info(), self._tools)
        if seen.message and self._said is not None:
            ending = self._message(generation, seen.turn.content, self._said)
        elif seen.message:
            ending = self._remind(generation)
        else:
            parse = ParseKind.strict if seen.turn.strict else ParseKind.tolerant
            parsed = [read_call(call.name, call.arguments, self._tools, parse) for call in seen.turn.calls]
            steps, asked = list[Step](), parsed or [not_read(seen.unreadable)]
            for one in asked:
                steps.append(Step(one.call, plainly(self._observe(one))))
                if one.tool is not None and one.tool.role in (Role.submit, Role.report):
                    break
            last = asked[len(steps) - 1]
            ending = self._called(generation, parse if parsed else ParseKind.none, tuple(steps), last)
        results = tuple(step.observation.text for step in self.turns[-1].steps)
        self.told = Past(seen.turn.content if seen.calls else seen.said, seen.thought, seen.calls, results)
        return ending

    def _message(self, generation: Generation, text: str, said: int) -> Ending | None:
        """A plain message, which brings the user's next one or ends the task."""
        more = said < len(self._task.follow_ups)
        observation = observe_user(self._task.follow_ups[said]) if more else observe_end()
        self._said = said + 1
        if more:
            self._injector.heard()
        self.answer = None if more else canonical(text.strip())
        role = None if more else Role.submit
        return self._add(generation, ParseKind.strict, (Step(None, observation),), role)

    def _remind(self, generation: Generation) -> Ending | None:
        """A plain message where a call is wanted: a reminder once, the end the second time."""
        observation = observe_end() if self._reminded else observe_reminder()
        ending = self._add(generation, ParseKind.none, (Step(None, observation),), None)
        ending, self._reminded = Ending.stopped_talking if self._reminded else ending, True
        return ending

    def _called(
        self, generation: Generation, parse: ParseKind, steps: tuple[Step, ...], last: ParsedTurn
    ) -> Ending | None:
        self.errors += sum(step.observation.channel is not None for step in steps)
        self.answer = last.submitted
        return self._add(generation, parse, steps, None if last.tool is None else last.tool.role)

    def _add(
        self, generation: Generation, parse: ParseKind, steps: tuple[Step, ...], called: Role | None
    ) -> Ending | None:
        """Write a turn down; how the episode ends with it. A terminal call comes first."""
        first, *more = steps
        turn = Turn(len(self.turns), generation, parse, first.call, first.observation, tuple(more))
        self.turns.append(turn)
        self.told = first.observation.text
        if called is Role.submit:
            return Ending.submitted
        if called is Role.report:
            return Ending.reported_failure
        if generation.stop is StopReason.context:
            return Ending.out_of_context
        if self.errors > self._rules.error_budget:
            return Ending.out_of_errors
        return Ending.out_of_steps if len(self.turns) >= self._rules.step_budget else None

    def _repairing(self, observation: Observation) -> Observation:
        """A failed call's observation asks for a repair, so often in an episode."""
        if self._rules.executor is not ExecutorKind.repair or observation.ok or self._repairs == MOST_REPAIRS:
            return observation
        self._repairs += 1
        return with_repair(observation)

    def _observe(self, parsed: ParsedTurn) -> Observation:
        """Run a call."""
        if parsed.problem is not None:
            return observe_problem(parsed.problem)
        assert parsed.tool is not None
        assert parsed.call is not None
        if parsed.tool.role in (Role.submit, Role.report):
            return observe_end()
        return observe_answer(self._injector.answer(len(self.turns), parsed.call, parsed.arguments))


def schema_version(executor: ExecutorKind, *, plain: bool) -> int:
    """Of the logs of an executor, in a plain world or in one that acts."""
    if executor is ExecutorKind.native:
        return NATIVE_SCHEMA_VERSION
    return SCHEMA_VERSION if plain else ACTING_SCHEMA_VERSION


def observe_answer(answered: Answered) -> Observation:
    """What the model is shown of a call's answer."""
    outcome = answered.outcome
    if isinstance(outcome, Found):
        return observe_record(outcome.record, injected=answered.injected)
    if isinstance(outcome, Failed):
        return observe_fault(outcome.code, outcome.message, outcome.extra)
    if isinstance(outcome, Cut):
        return observe_cut(outcome.record)
    channel = Channel.policy if isinstance(outcome, Refused) else Channel.entity
    return observe_problem(Problem(channel, outcome.message))


class _Acting:
    """Digests of a world's state in the course of an episode: of the start, then after each turn."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.digests = [state_digest(state)]

    def note(self, state: State) -> None:
        """Take down the state after a turn. A lookup leaves the very state, which is not hashed again."""
        same = state is self._state
        self.digests.append(self.digests[-1] if same else state_digest(state))
        self._state = state


def _value(task: Task, answer: str | None) -> Json:
    """A submitted answer as a world's check takes it; a number may be written as an expression."""
    if answer is None:
        return None
    if isinstance(task.answer, Decimal):
        read = read_answer(answer).value
        return None if read is None else Decimal(read.numerator) / read.denominator
    return read_json(answer)


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
                text = message.text if isinstance(message.text, str) else message.text.told
                generation = self.engine.begin(
                    self._scripts.system, text, limit, native=message.native, trial=self._scripts.rules.trial
                )
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
        rules = self._scripts.rules
        return Ask(stream, system, message.text, rules.max_tokens, native=message.native, trial=rules.trial)


def recorded(end: StopIteration) -> Episode:
    """What a script ended in."""
    if not isinstance(end.value, Episode):
        raise EngineError("an episode ended without a record")
    return end.value
