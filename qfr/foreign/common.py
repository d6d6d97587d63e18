"""The nouns of an imported log, each with a line under its fields."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from qfr.records import Episode


class SourceKind(StrEnum):
    """Which program wrote the log."""

    tau2 = "tau2-bench"
    tau1 = "tau-bench"
    neutral = "other"
    # Lines of the neutral format, from whatever program.


class Release(StrEnum):
    """Whether the writing program dropped simulations in which the agent invented a tool name.

    Before tau2-bench 1.0.1 such a name crashed the replay that computes the reward; the simulation was run
    again and at last dropped. The tool-name channel of such a file is censored.
    """

    before = "before 1.0.1"
    since = "1.0.1 or later"
    unknown = "unknown"
    not_applicable = "not applicable"


class Requestor(StrEnum):
    """Who asked for a call. The names are the logs' own: the agent is the assistant."""

    agent = "assistant"
    user = "user"


class FailureKind(StrEnum):
    """Which way a call failed (Jang 2026). Each failing call has exactly one kind."""

    tool_name = "tool_name"
    # No such tool.
    arguments = "arguments"
    # Missing, unexpected or ill-typed arguments.
    entity = "entity"
    # An id that does not exist.
    policy = "policy"
    # The tool refused: a rule or the state forbids it. Also every text that none of the others explains.
    form = "format"
    # The turn could not be read as a call. Only files of the neutral format list such turns.


@dataclass(frozen=True)
class Options:
    """What the file does not say."""

    model: str | None = None
    # Name of the agent's model; None takes the file's own, or the file's name.
    user_tools: frozenset[str] = frozenset()
    # Tools of the user simulator, added to those that the file shows.
    release: Release | None = None
    # Release of the writing program; None finds it out.
    tasks: tuple[str, ...] = ()
    # Ids of the tasks that were planned; empty takes what the file says or holds.
    trials: int | None = None
    # Planned trials per task; None takes what the file says or holds.


@dataclass(frozen=True)
class ForeignCall:
    """One tool call of a conversation, the agent's or the user simulator's."""

    requestor: Requestor
    message: int
    # Index of the asking message in the log.
    turn: int | None
    # Index of the turn in the episode; None for a call of the user simulator.
    tool: str
    # Tool name exactly as asked for.
    answered: bool
    # The log holds a result for it.
    failure: FailureKind | None
    # None for a call that succeeded or was never answered.
    recognised: bool
    # False for a failure that counts as policy only because its text fits no known form.
    role_confusion: bool
    # tool_name only: the agent called a tool of the user's.


@dataclass(frozen=True)
class Talk:
    """One message between agent and user, without a tool call."""

    role: Requestor
    # Who wrote it.
    before: int
    # Index of the turn that follows; the number of turns for what comes after the last.
    text: str


@dataclass(frozen=True)
class ForeignEpisode:
    """One simulation that its log scores."""

    episode: Episode
    # The agent's side in qfr's own records.
    success: bool
    # |reward - 1| <= 1e-6.
    reward: float
    # As the file gives it.
    termination_reason: str
    # The log's word (tau2-bench); read off the last message for tau-bench v1: user_stop, agent_stop,
    # max_steps or unknown.
    simulation: str
    # The log's id of it, empty where it gives none.
    calls: tuple[ForeignCall, ...]
    # All calls in order, the agent's and the user simulator's.
    talk: tuple[Talk, ...]
    # Messages between agent and user.
    agent_messages: int
    # Messages that the agent wrote, with or without calls; the program's fixed greeting is not one.
    completion_tokens: int | None
    # Tokens that the agent generated, None where the log does not count them.
    left_in_text: int = 0
    # The agent's messages that hold a call as text, which the program did not run.

    def asked(self, requestor: Requestor) -> int:
        """Number of calls that one side asked for."""
        return sum(call.requestor is requestor for call in self.calls)

    def errors(self, requestor: Requestor | None = None) -> int:
        """Number of failing calls of one side, or of both together."""
        return sum(
            call.failure is not None and (requestor is None or call.requestor is requestor)
            for call in self.calls
        )

    def failures(self, kind: FailureKind) -> int:
        """Number of the agent's calls that failed this way."""
        return sum(call.requestor is Requestor.agent and call.failure is kind for call in self.calls)

    @property
    def role_confusions(self) -> int:
        """Number of the agent's calls of a tool of the user's."""
        return sum(call.role_confusion for call in self.calls)


@dataclass(frozen=True)
class Excluded:
    """A simulation that is in no rate: the log does not score it, or does not hold it."""

    task: str
    trial: int
    reason: str
    # The log's termination reason; "missing" for a planned simulation that the log does not hold, "crashed"
    # for a tau-bench v1 run that recorded an exception.
    simulation: str
    # The log's id of it, empty where there is none.


@dataclass(frozen=True)
class ForeignInfo:
    """What a log says of its making. Empty or None where it is silent."""

    kind: SourceKind
    release: Release
    release_reason: str
    # How the release was found out.
    model: str
    agent: str = ""
    # Implementation of the agent.
    user_model: str = ""
    domain: str = ""
    git_commit: str = ""
    # Of the writing program.
    timestamp: str = ""
    trials: int = 0
    # Planned trials per task.
    plan_stated: bool = False
    # The log, or who imports it, says which tasks and trials were planned; otherwise they are those that it
    # holds, and a run that was cut short looks complete.
    text_agent: bool = False
    # The agent wrote its calls as text, which the program read: malformed ones are in the log.
    max_steps: int | None = None
    max_errors: int | None = None
    # Failing calls (of both sides, cumulative) at which the run was ended; None without a budget.
    seed: int | None = None
    user_tools: frozenset[str] = frozenset()
    # Known tools of the user simulator; empty where none is known, so that role confusion cannot be told.
    source: str = ""
    # File or folder name.
    sha256: str = ""
    # Over the bytes of all files read.
    unseen: tuple[str, ...] = ()
    # Neutral format: what its lines say that they cannot show (`format`, `premature_give_up`).


@dataclass(frozen=True)
class ReasonCount:
    """How many simulations ended up excluded for one reason."""

    reason: str
    count: int


@dataclass(frozen=True)
class ForeignRun:
    """An imported log."""

    info: ForeignInfo
    episodes: tuple[ForeignEpisode, ...]
    # Scored simulations, by task (in the order of the log) and trial.
    excluded: tuple[Excluded, ...]
    # All others, in the same order.
    warnings: tuple[str, ...]
    # What a reader of the results must know, one sentence each.

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks, those with excluded simulations only included, in the order of the log."""
        seen = [found.episode.task for found in self.episodes] + [gone.task for gone in self.excluded]
        return tuple(dict.fromkeys(seen))

    @property
    def left_in_text(self) -> int:
        """Messages of the agent that hold a call as text, which the program did not run."""
        return sum(found.left_in_text for found in self.episodes)

    @property
    def blind(self) -> str:
        """Why calls and errors cannot be seen in this log; empty where they can."""
        if self.left_in_text and not any(found.asked(Requestor.agent) for found in self.episodes):
            return f"not observable: {self.left_in_text} messages hold a call as text, and none was run"
        if self.info.kind is SourceKind.neutral and not any(found.calls for found in self.episodes):
            return "not observable: the file lists no calls"
        return ""

    @property
    def unseen(self) -> tuple[str, ...]:
        """What this log cannot show, of `format` (turns that are no call) and `premature_give_up`."""
        if self.info.kind is SourceKind.neutral:
            return self.info.unseen
        sees_format = self.info.text_agent or self.left_in_text
        return ("premature_give_up",) if sees_format else ("format", "premature_give_up")

    def excluded_by_reason(self) -> tuple[ReasonCount, ...]:
        """Excluded simulations counted by reason, most frequent first."""
        counts: dict[str, int] = {}
        for gone in self.excluded:
            counts[gone.reason] = counts.get(gone.reason, 0) + 1
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return tuple(ReasonCount(reason, count) for reason, count in ranked)
