"""An engine without a model: a function writes the turns. For tests, dry runs and the smoke experiment."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from qfr.canonical import canonical, read_json
from qfr.engine.base import Answered, Ask, Counters, EngineInfo, Native, Past
from qfr.engine.native.served import FORM, written
from qfr.engine.tree import ROOT, Tally
from qfr.errors import EngineError
from qfr.records import Generation, StopReason

Policy = Callable[[str, str, tuple[tuple[str, str], ...]], str]
# From the system message, the task message and the turns so far (text, observation) to the next turn's text.

# Words, digits and marks, one token each; blanks belong to what follows them.
_TOKEN = re.compile(r"\s*(?:[^\W\d_]+|\d|[\W_])|\s+")
_END = 0
# Id of the end token; text tokens are larger.
_IDS = 50_000


# What a scripted agent of the text protocol finds before a result.
_PREFIX = "Observation: "


def _natively(text: str) -> str:
    """A turn of the text protocol with its call in the native form."""
    try:
        turn = read_json(text)
    except ValueError:
        return text
    if not isinstance(turn, dict) or not isinstance(turn.get("tool"), str):
        return text
    return written("", [(str(turn["tool"]), canonical(turn.get("arguments")))])


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _ids(tokens: Sequence[str]) -> tuple[int, ...]:
    """Ids that depend on the token's text alone."""
    digests = (
        hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=4).digest() for token in tokens
    )
    return tuple(1 + int.from_bytes(digest, "big") % (_IDS - 1) for digest in digests)


@dataclass
class _Open:
    """The episode being played."""

    system: str
    task: str
    history: tuple[tuple[str, str], ...]
    text: str
    # The turn written last, as the policy wrote it.
    path: bytes
    # Tree node reached.
    length: int
    # Tokens of the transcript.
    pending: tuple[int, ...]
    # Token that a cut turn leaves to be evaluated.
    native: bool = False
    # Its calls are written in the native form.


class ScriptedEngine:
    """Plays what `policy` writes. Implements `qfr.engine.base.Engine`.

    Tokens, margins and digests are made up but depend on the transcript alone, like a model's. Counters are
    those of an engine that never evaluates a node of the tree twice.

    Parameters
    ----------
    policy
        Writes a turn; what it raises goes to the caller.
    n_ctx : int
        Context length in (made-up) tokens.
    fail_at : int or None
        Number of the turn, counted from 0 over the engine's life, at which it breaks with an `EngineError`.
    """

    def __init__(self, policy: Policy, *, n_ctx: int = 1 << 20, fail_at: int | None = None) -> None:
        self._policy, self._n_ctx, self._fail_at = policy, n_ctx, fail_at
        self._turns = 0
        self._tally = Tally()
        self._open: _Open | None = None

    @property
    def info(self) -> EngineInfo:
        """Nothing but the kind and the context."""
        empty = hashlib.sha256().hexdigest()
        return EngineInfo(
            kind="scripted",
            library_version="",
            llama_commit="",
            llama_commit_source="none",
            library_sha256=empty,
            system_info="",
            device="cpu",
            offloaded_layers=0,
            n_ctx=self._n_ctx,
            model_sha256=empty,
            model_bytes=0,
            n_params=0,
            tensor_types=(),
            metadata=(),
            template_sha256=empty,
            system_role="own",
            rewind=True,
            call_form=canonical(asdict(FORM)),
        )

    def begin(
        self,
        system: str,
        task: str,
        max_tokens: int,
        forced: str | None = None,
        native: Native | None = None,
        trial: int = 0,
    ) -> Generation:
        """Open an episode's transcript and write its first turn."""
        self._open = _Open(system, task, (), "", ROOT, 0, (), native is not None)
        tools = "" if native is None else native.tools
        segments = (_ids(_tokens(system + tools)), _ids(_tokens(task)))
        return self._turn(self._open, segments, max_tokens, forced)

    def reply(self, told: str | Past, max_tokens: int, forced: str | None = None) -> Generation:
        """Append an observation and write the next turn."""
        if self._open is None:
            raise EngineError("an observation came before an episode was opened")
        observation = told if isinstance(told, str) else f"{_PREFIX if told.calls else ''}{told.told}"
        self._open.history = (*self._open.history, (self._open.text, observation))
        return self._turn(self._open, (_ids(_tokens(observation)),), max_tokens, forced)

    def counters(self) -> Counters:
        """Work so far, without times."""
        return self._tally.counters()

    def reset_counters(self) -> None:
        """Start counting anew."""
        self._tally.reset(())

    def close(self) -> None:
        """Nothing to free."""
        self._open = None

    def _turn(
        self, episode: _Open, segments: tuple[tuple[int, ...], ...], max_tokens: int, forced: str | None
    ) -> Generation:
        size = sum(map(len, segments))
        if episode.length + len(episode.pending) + size > self._n_ctx:
            empty = hashlib.sha256().hexdigest()
            return Generation("", (), StopReason.context, size, (), empty, control_text=False)
        for segment in (episode.pending, *segments) if episode.pending else segments:
            self._visit(episode, segment)
        if self._turns == self._fail_at:
            raise EngineError(f"the scripted engine was told to fail at turn {self._fail_at}")
        self._turns += 1
        text = self._policy(episode.system, episode.task, episode.history) if forced is None else forced
        plain, text = text, _natively(text) if episode.native else text
        pieces = _tokens(text)
        room = self._n_ctx - episode.length + 1
        stop, ids = StopReason.end_of_generation, (*_ids(pieces), _END)
        if len(ids) > min(max_tokens, room):
            stop = StopReason.max_tokens if max_tokens <= room else StopReason.context
            ids = ids[: min(max_tokens, room)]
            text = plain = "".join(pieces[: len(ids)])
        if forced is None:
            self._tally.chosen(len(ids))
        digest = hashlib.sha256(episode.path + repr(ids).encode())
        self._visit(episode, ids[:-1])
        episode.text = plain
        episode.pending = () if stop is StopReason.end_of_generation else ids[-1:]
        margins = tuple(1 + (token % 64) / 16 for token in ids)
        return Generation(text, ids, stop, size, margins, digest.hexdigest(), control_text=False)

    def _visit(self, episode: _Open, tokens: tuple[int, ...]) -> None:
        before = self._tally.counters().tree
        episode.path = self._tally.visit(episode.path, tokens)
        episode.length += len(tokens)
        new = self._tally.counters().tree - before
        if new:
            self._tally.evaluated(new, 0.0)


class ScriptedStreams(ScriptedEngine):
    """The same for several streams. Implements `qfr.engine.base.StreamEngine`.

    Parameters
    ----------
    policy
        Writes a turn.
    streams : int
        Streams at most.
    """

    def __init__(self, policy: Policy, streams: int) -> None:
        super().__init__(policy)
        self._episodes: list[_Open | None] = [None] * streams

    def advance(self, asks: tuple[Ask, ...]) -> tuple[Answered, ...]:
        """Write the turn of every message."""
        answers = []
        for ask in sorted(asks, key=lambda one: one.stream):
            self._open = self._episodes[ask.stream]
            if ask.system is None:
                made = self.reply(ask.message, ask.max_tokens, ask.forced)
            else:
                task = ask.message if isinstance(ask.message, str) else ask.message.told
                made = self.begin(ask.system, task, ask.max_tokens, ask.forced, ask.native, ask.trial)
            self._episodes[ask.stream] = self._open
            answers.append(Answered(ask.stream, made))
        return tuple(answers)

    def keep(self) -> None:
        """Nothing to keep: what is evaluated is counted, not done."""

    def forget(self) -> None:
        """Nothing was kept."""
