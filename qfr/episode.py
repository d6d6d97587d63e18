"""One attempt at one task: THE loop. No files, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from qfr.config import ExecutorKind
from qfr.engine.base import Engine
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


class Episodes:
    """Plays episodes of one prompt on one world with one engine.

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
        self._system = system
        self._rules = rules

    def play(self, cell_id: str, task: Task, kind: FaultKind, site: Site | None) -> Episode:
        """Play one episode from its start.

        Raises
        ------
        MachineryError
            The engine broke. There is no episode then: a broken machine is not a failed agent.
        """
        rules, tools = self._rules, task_tools(self.world, task)
        fault = None
        if site is not None:
            fault = ScheduledFault(kind, site, rules.fault_code, rules.fault_message)
        injector = Injector(self.world, task, fault)
        turns: list[Turn] = []
        errors, answer, ending = 0, None, None
        generation = self.engine.begin(self._system, task.text, rules.max_tokens)
        while ending is None:
            if generation.stop is StopReason.context and not generation.token_ids:
                ending = Ending.out_of_context
                break
            injector.saw(len(turns))
            parsed = read_turn(generation.text, tools, repair=rules.executor is ExecutorKind.tolerant)
            observation = self._observe(parsed, injector, len(turns))
            turns.append(Turn(len(turns), generation, parsed.parse, parsed.call, observation))
            errors += observation.channel is not None
            answer = parsed.submitted
            ending = self._ending(parsed, generation, len(turns), errors)
            if ending is None:
                generation = self.engine.reply(observation.text, rules.max_tokens)
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
        if errors > self._rules.error_budget:
            return Ending.out_of_errors
        return Ending.out_of_steps if turns >= self._rules.step_budget else None
