"""What is written down: the nouns of an episode log, one line of meaning under each field.

All records are frozen. An episode's log line is the canonical JSON of `Episode`; scores, tables and
reports are derived from it and can be rebuilt from it alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from qfr.faults import FaultKind as FaultKind

SCHEMA_VERSION = 1
# Of episodes in worlds of lookups whose answer is a number.
ACTING_SCHEMA_VERSION = 2
# Of episodes with `Acts`: every other world.
NATIVE_SCHEMA_VERSION = 3
# Of episodes played by a template's own tool calls: a turn may hold several. With or without `Acts`.


class Channel(StrEnum):
    """Which way a call of the agent failed (Jang 2026). An injected fault is not the agent's error."""

    tool_name = "tool_name"
    arguments = "arguments"
    entity = "entity"
    form = "format"
    policy = "policy"
    # The call broke a rule of the tool or met a state that forbids it.


class ParseKind(StrEnum):
    """How the turn's text was read: the whole turn, the first object found in it, or not at all."""

    strict = "strict"
    tolerant = "tolerant"
    none = "none"


class StopReason(StrEnum):
    """Why the model stopped writing this turn."""

    end_of_generation = "end_of_generation"
    max_tokens = "max_tokens"
    context = "context"


class Ending(StrEnum):
    """How the episode ended. A machinery failure is an exception, not an ending."""

    submitted = "submitted"
    reported_failure = "reported_failure"
    out_of_steps = "out_of_steps"
    out_of_errors = "out_of_errors"
    out_of_context = "out_of_context"
    stopped_talking = "stopped_talking"
    # Native: a second plain message without a call, after the reminder.


class Policy(StrEnum):
    """Scoring policy (Hu 2026, section 3). Both are always computed from the same log."""

    tolerant = "tolerant"
    strict = "strict"


class Role(StrEnum):
    """What a tool is for."""

    lookup = "lookup"
    # Reads, and leaves the state of the world as it was.
    write = "write"
    # Changes the state of the world.
    submit = "submit"
    report = "report"


class Kind(StrEnum):
    """Type of a parameter as the signature shows it."""

    string = "string"
    number = "number"
    boolean = "boolean"
    strings = "strings"
    # A list of strings.
    any = "any"
    # Any JSON value.


@dataclass(frozen=True)
class Parameter:
    """One parameter of a tool."""

    name: str
    # As in the signature.
    kind: Kind
    # Its type.
    doc: str
    # What it is, in a few words.
    required: bool = True
    # False when a call may leave it out.
    free: bool = False
    # The value is the agent's own choice (a key, a note): calls that differ in it alone are one call.


@dataclass(frozen=True)
class Tool:
    """A tool as prompts show it. A submit tool has one parameter, or none where no answer is asked for."""

    name: str
    # As the model must write it.
    role: Role
    # What it is for.
    parameters: tuple[Parameter, ...]
    # In the order of the signature.
    doc: str
    # One sentence.

    @property
    def signature(self) -> str:
        """`get_order(order_id: string)`."""
        inside = ", ".join(f"{p.name}{'' if p.required else '?'}: {p.kind}" for p in self.parameters)
        return f"{self.name}({inside})"


@dataclass(frozen=True)
class ToolCall:
    """A call as the model asked for it."""

    tool: str
    # Tool name exactly as the model wrote it.
    arguments: str
    # The arguments object as canonical JSON (sorted keys, numbers in the digits the model wrote).


@dataclass(frozen=True)
class Observation:
    """What the executor answered."""

    text: str
    # Exact text of the user message that the model sees next ("" after a terminal call: nothing is sent).
    ok: bool
    # False when the call failed, for whatever reason.
    channel: Channel | None
    # The agent's own error; None when the call was good or when the fault was injected.
    injected: bool
    # True when the text comes from the fault and not from the world.


@dataclass(frozen=True)
class Generation:
    """One turn's text as the engine produced it."""

    text: str
    # Decoded from the tokens' bytes; ill-formed UTF-8 becomes U+FFFD (token_ids lose nothing).
    token_ids: tuple[int, ...]
    # Generated tokens in order, the end-of-generation token included when it ended the turn.
    stop: StopReason
    # Why it stopped.
    prompt_tokens: int
    # Tokens of the segments appended before this turn (system and task, or the observation).
    margins: tuple[float, ...]
    # Per generated token: top logit minus runner-up, in logits.
    logits_sha256: str
    # SHA-256 over the little-endian float32 logit vectors of this turn's tokens, in order.
    control_text: bool
    # True when a content of this turn's input, or the turn itself, spells a control token of the model.
    rewritten: int = 0
    # Tokens of earlier messages that were read anew before this turn, since the chat template shows them
    # otherwise as the conversation grows. Not written down where it is 0.
    thought_tokens: int = 0
    # Native: of the generated tokens, those of thoughts, marks included. Not written down where it is 0.

    @property
    def cut_in_thought(self) -> bool:
        """Whether the turn was cut at its limit inside a thought (native)."""
        whole = 0 < self.thought_tokens == len(self.token_ids)
        return whole and self.stop is not StopReason.end_of_generation


@dataclass(frozen=True)
class Step:
    """A further call of a turn, and what it returned."""

    call: ToolCall | None
    # None where the call could not be taken over as it was written.
    observation: Observation
    # The executor's answer.


@dataclass(frozen=True)
class Turn:
    """One model turn and what came of it."""

    index: int
    # 0 for the first turn.
    generation: Generation
    # What the model wrote.
    parse: ParseKind
    # Which reading applied.
    call: ToolCall | None
    # The call read from the text, None when nothing could be read.
    observation: Observation
    # The executor's answer.
    more: tuple[Step, ...] = ()
    # Native: the turn's calls after the first, in order. Not written down where there is none.

    @property
    def steps(self) -> tuple[Step, ...]:
        """All calls of the turn with their answers; one without a call where nothing could be read."""
        return (Step(self.call, self.observation), *self.more)


@dataclass(frozen=True)
class FaultTrace:
    """Life of the scheduled fault: the index of the turn of each event, None when it did not happen."""

    site: int
    # Index of the site among the task's sites for this kind.
    tool: str
    # Tool at the site.
    arguments: str
    # Canonical gold arguments at the site.
    fired: int | None
    # The fault's text (or the displaced record) was the answer to this turn's call for the first time.
    witnessed: int | None
    # The first turn whose rendered prompt holds the fault's text.
    retried: int | None
    # The first later turn with the same call (same tool and arguments).
    recovered: int | None
    # The first later turn whose identical call succeeded (ET, IT: the true record was read).
    dead_calls: int
    # Calls of the faulted tool that the fault answered (EP: calls of the dead tool; ET, IT: 0 or 1).


@dataclass(frozen=True)
class Acts:
    """What an episode did to its world, and how the world judges it."""

    start: str
    # SHA-256 of the state before the first turn, as canonical JSON.
    states: tuple[str, ...]
    # The same after each turn.
    right: bool
    # The agent ended the task, and the world's check takes the final state and the answer for right.
    duplicate_writes: int
    # Times that the call at the fault's site changed the state after it had done so once.


@dataclass(frozen=True)
class Episode:
    """One attempt at one task: a line of `episodes.jsonl`. Holds no time, host, process or run id."""

    schema: int
    # SCHEMA_VERSION of the writer.
    cell_id: str
    # What ran.
    task: str
    # Task id within the suite.
    family: str
    # The task's family.
    fault: FaultKind
    # Kind injected in this episode.
    trial: int
    # Repetition of the cell, 0 for the first.
    trace: FaultTrace | None
    # None exactly when fault is none.
    turns: tuple[Turn, ...]
    # In order.
    ending: Ending
    # Exactly one.
    answer: str | None
    # Canonical JSON of the submitted answer argument; None when nothing was submitted.
    gold: str
    # The gold answer: a plain decimal; with `acts` also canonical JSON ("null": the state alone decides).
    errors: int
    # Failed calls of the agent (channel not None), cumulative.
    acts: Acts | None = None
    # None under SCHEMA_VERSION, never under ACTING_SCHEMA_VERSION; not written down where it is None.


@dataclass(frozen=True)
class Score:
    """What one policy says of one episode."""

    success: bool
    # The episode counts as a success under the policy (EP: a correct report after enough calls).
    right_answer: bool
    # A submitted answer equals the gold answer under the policy (acting worlds: the world's check says so).
    reason: str
    # One word for the result: right_answer, wrong_answer, no_number, not_literal, not_strict, gave_up,
    # reported, reported_early, invented, or the ending's name.
    delivered: bool
    # The scheduled fault fired (True for clean episodes).
    reported: bool
    # EP, IP: report_failure without an answer, however early.
    reported_after: bool
    # EP, IP: reported after at least k calls that the fault answered (scorer.ep_min_calls).
    invented: bool
    # EP: a number was submitted although the value could not be known.
    requeried: bool
    # IT, IP: the displaced lookup was asked again.
    expression: bool
    # The submitted answer was an arithmetic expression or a numeric string.
    strict_throughout: bool
    # Every turn was strict JSON.
    blind_trust: bool
    # IP, TR: an answer was given, and the call that got wrong or cut data was never made again.
    stale_answer: bool
    # CH: an answer was given, and the newer record was never read.
    wasted_calls: int
    # ER, RL: calls that the fault answered after its first answer.
    duplicate_writes: int
    # Times that the call at the site changed the state again (`Acts.duplicate_writes`).
