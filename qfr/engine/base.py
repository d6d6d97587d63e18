"""What an engine is: it appends messages to one transcript and answers greedily.

An engine is a cursor on one token transcript (docs: "canonical segmentation"). `begin` opens the transcript
of an episode, `reply` appends an observation. Calls that repeat the path of the episode before are answered
from memory without evaluating a token; at the first difference the engine rewinds to the fork. Callers
therefore play every episode from its start and get forking for free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from qfr.choices import Thinking
from qfr.records import Generation


@dataclass(frozen=True)
class EngineInfo:
    """Provenance of a loaded engine: what answered."""

    kind: str
    # llama_cpp, scripted or openai.
    library_version: str
    # Version of the binding.
    llama_commit: str
    # llama.cpp commit ("unknown" where neither the library nor the table knows it).
    llama_commit_source: str
    # library, table or none.
    library_sha256: str
    # Digest over the loaded shared libraries, in name order.
    system_info: str
    # llama.cpp's own line about the CPU and GPU features; what a server says of itself, as JSON.
    device: str
    # Names of the devices that hold layers, "cpu" without offload.
    offloaded_layers: int
    # Layers offloaded.
    n_ctx: int
    # Effective context length, in tokens.
    model_sha256: str
    # Digest of the GGUF (of all its parts, in order).
    model_bytes: int
    # Size on disk.
    n_params: int
    # Number of weights.
    tensor_types: tuple[tuple[str, int], ...]
    # Histogram: GGML type name, number of tensors; sorted by name.
    metadata: tuple[tuple[str, str], ...]
    # GGUF metadata of scalar and short string kind, sorted by key (quantize.imatrix.* included).
    template_sha256: str
    # Digest of the chat template.
    system_role: str
    # own = the template has a system turn; folded = it joins the text to the first user turn; refused = it
    # takes no system message, and the text heads the first user message; server = a server's template.
    rewind: bool
    # False when the cache cannot be rewound and every episode is evaluated afresh.
    exactness: str = ""
    # What a trial of forks against fresh evaluation showed, in one line; "" where none was made.
    thinking: str = ""
    # Opening of a thought in which the template leaves the model when its turn begins; "" = none.
    rewrites: str = ""
    # What the template changes in earlier messages as a conversation grows; "" = nothing.
    alters: str = ""
    # Which contents the template shows otherwise than they are (escaped, cut); "" = none.
    thinks: bool = False
    # The template has a switch `enable_thinking`, and leaves it on.
    transcript: str = ""
    # Canonical JSON of all that a transcript is put together from: template, its variables, spelling of begin
    # and end tokens, how it is asked, and the markup around messages.
    call_form: str = ""
    # JSON of the form in which the template writes calls (`qfr.engine.native.form`); "" = it has none.
    no_form: str = ""
    # Why it has none; "" where it has one.

    def notes(self) -> tuple[str, ...]:
        """What a reader has to know of the chat template, one sentence each."""
        said = []
        if self.system_role == "refused":
            said.append("it takes no system message: the prompt heads the first user message")
        if self.thinking:
            said.append(f"each turn begins inside a thought ({self.thinking}); a call counts only behind it")
        if self.thinks:
            said.append("it lets the model think; model.template_options={enable_thinking: false} does not")
        if self.rewrites:
            said.append(f"it rewrites history, which is read anew: {self.rewrites}")
        if self.alters:
            said.append(f"it alters texts of these kinds: {self.alters}")
        return tuple(said)


@dataclass(frozen=True)
class Native:
    """Opens an episode in which the model calls tools in its template's own form."""

    tools: str
    # The tools' JSON schemas, as a JSON list.
    thinking: Thinking
    # How thoughts of earlier turns are shown.


@dataclass(frozen=True)
class PastCall:
    """A call of the turn before, as history shows it."""

    name: str
    # As the model wrote it.
    arguments: str
    # The arguments object as JSON.


@dataclass(frozen=True)
class Past:
    """The turn before as it was read, and what it is told: natively."""

    content: str
    # Its text beside thoughts and calls; of a turn without a call all but the thoughts.
    thought: str
    # Its thoughts; "" = none.
    calls: tuple[PastCall, ...]
    # In order; empty where the next message is the user's.
    results: tuple[str, ...]
    # What each call returned; of a turn without a call one message of the user.

    @property
    def told(self) -> str:
        """All results as one text."""
        return "\n".join(self.results)


@dataclass(frozen=True)
class Counters:
    """Work of the engine since it was loaded or since the last `reset_counters`."""

    evaluated: int
    # Tokens evaluated by llama_decode.
    generated: int
    # Tokens chosen by argmax (end-of-generation tokens included).
    tree: int
    # Tokens of all distinct nodes of the segment tree that had to be evaluated.
    trie: int
    # Tokens of the finer token trie (segments share leading tokens).
    fresh: int
    # Tokens that a run evaluating every episode afresh would have evaluated.
    prefill_seconds: float
    # Wall time in multi-token decodes.
    decode_seconds: float
    # Wall time in single-token decodes.
    prefill_tokens: int
    # Tokens evaluated in segments.
    decode_tokens: int
    # Tokens evaluated one by one.
    rewritten: int = 0
    # Of `tree`: tokens of earlier messages that the template shows otherwise as the conversation grows.

    @classmethod
    def total(cls, counts: Sequence[Counters]) -> Counters:
        """The sum over workers. A prefix that several of them evaluated counts for each."""
        names = [one.name for one in fields(cls)]
        return cls(**{name: sum(getattr(one, name) for one in counts) for name in names})


@dataclass(frozen=True)
class Exactness:
    """What the trial showed."""

    exact: bool
    # Forks leave the very bits; False also where the cache cannot be taken back at all.
    turns: int
    # Turns that were compared, each by the digest of all its logits.
    difference: str
    # The first difference, or why nothing was compared; "" where all is equal.
    seconds: float
    # What the trial took.


@dataclass(frozen=True, eq=False)
class Followed:
    """What an engine makes of a turn that another one wrote. One entry per token of the turn."""

    winners: tuple[int, ...]
    # Its own choice there.
    margins: tuple[float, ...]
    # Lead of that choice over the runner-up, in logits.
    leads: tuple[float, ...]
    # Lead of the written token over the best other one: its margin where it is the choice, else negative.
    ends: tuple[int, ...]
    # Where the token ends in the turn's text, in bytes.
    known: bool
    # The same turn was read in the episode before: nothing was evaluated.
    rows: NDArray[np.float32] | None
    # Log-probabilities of all tokens, shape (n_tokens, n_vocab); None where they were not asked for.


class Engine(Protocol):
    """A loaded model. One episode at a time."""

    @property
    def info(self) -> EngineInfo:
        """What answered."""
        ...

    def begin(
        self,
        system: str,
        task: str,
        max_tokens: int,
        forced: str | None = None,
        native: Native | None = None,
        trial: int = 0,
    ) -> Generation:
        """Open an episode's transcript and generate its first turn.

        `trial` numbers repetitions of a task: each draws its tokens with noise of its own.
        `native` opens one in which the template's own tool calls are used.
        `forced` writes this assistant text instead of generating it (teacher forcing): same segments,
        logits digested as if each token had been chosen.

        Raises
        ------
        EngineError
            Non-finite logits, a failed decode, a template that loses a message.
        WorkerDied
            The engine's process ended.
        """
        ...

    def reply(self, told: str | Past, max_tokens: int, forced: str | None = None) -> Generation:
        """Append an observation as a user message, or natively what calls returned; the next turn.

        When the segment does not fit into the context the generation is empty and its stop reason is
        `context`.
        """
        ...

    def counters(self) -> Counters:
        """Work so far."""
        ...

    def reset_counters(self) -> None:
        """Start counting anew (and forget the segment tree that the ratio is measured against)."""
        ...

    def close(self) -> None:
        """Free the model's memory."""
        ...


@dataclass(frozen=True)
class Ask:
    """A message for one of several streams, whose next turn is wanted."""

    stream: int
    # Number of the stream, from 0.
    system: str | None
    # The system message where this opens an episode; None where it goes on.
    message: str | Past
    # The task's text, an observation, or natively what the turn before is told.
    max_tokens: int
    # Tokens of the turn at most.
    forced: str | None = None
    # Assistant text that is written instead of being generated.
    native: Native | None = None
    # Where this opens an episode that is played natively.
    trial: int = 0
    # Repetition of the task, where this opens an episode.


@dataclass(frozen=True)
class Answered:
    """A turn that one of several streams has finished."""

    stream: int
    generation: Generation


@runtime_checkable
class StreamEngine(Protocol):
    """A loaded model that plays several episodes in lockstep: each open turn gains one token per batch.

    What a batch holds follows from the sequence of calls alone. A message is evaluated in its own stream
    alone, as an engine of one stream does it; only generated tokens of several streams share a batch.
    """

    @property
    def info(self) -> EngineInfo:
        """What answers."""
        ...

    def advance(self, asks: tuple[Ask, ...]) -> tuple[Answered, ...]:
        """Take messages for streams without an open turn, and go on until at least one turn is finished.

        Returns
        -------
        tuple of Answered
            In the order of the streams. Turns that a kept transcript answers come at once.

        Raises
        ------
        EngineError
            Non-finite logits, a failed decode, a stream that is asked twice, nothing to go on with.
        WorkerDied
            The engine's process ended.
        """
        ...

    def keep(self) -> None:
        """Keep the transcripts that the streams hold now: later episodes that repeat one fork from it."""
        ...

    def forget(self) -> None:
        """Let go of the transcripts that were kept."""
        ...

    def counters(self) -> Counters:
        """Work so far."""
        ...

    def reset_counters(self) -> None:
        """Start counting anew."""
        ...

    def close(self) -> None:
        """Free the model's memory."""
        ...
