"""Training data, drawn on the fly: full episodes and drills, each batch under several system prompts.

Every id number comes from `Ids.training`, a set that no suite uses. A *drill* repeats the hard step alone:
`answer` drills are the observations that matter and the closing turn, `quit` drills a failed call and what
the agent does next, `check` drills a record, displaced or not, and what the agent does next. They are short;
full episodes stay about half of the tokens, because copying ids suffers where drills prevail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import numpy as np

from qfr.canonical import Json
from qfr.protocol import observe_record
from qfr.records import FaultKind
from qfr.world.base import Task, sites
from qfr.world.faults import ScheduledFault
from qfr.world.orders import Ids, OrdersWorld, build
from tools.reference.clauses import compose, draw_stance, drop_retry, without_retry
from tools.reference.demonstration import Demonstrator, Message, answer_text
from tools.reference.encoding import Arrays, Body, assemble, cut, encode_body
from tools.reference.policy import PLAIN, TABLES, Policy, obey
from tools.reference.template import END, SYSTEM, Encoder

PROMPTS = ("P0", "P1", "P2", "P3", "P4")
FAULT_CODE = "service_unavailable"
FAULT_MESSAGE = "The service did not answer the request."
# The texts of conf/config.yaml (a test compares).
FAULT_VARIANTS = (("timeout", "The request timed out."), ("internal_error", "The tool failed."))
FAILED = re.compile(r'"ok": false(?!.*unknown_tool)', re.DOTALL)
# Observation of a call that failed (an invented tool name is no failure of a tool).


@dataclass(frozen=True)
class Sizes:
    """How many bodies are drawn at a time, and how they are batched."""

    prompts: int = 4
    # System prompts in a batch; a composed one with a retry clause brings its twin without.
    episodes: int = 14
    answer_drills: int = 20
    quit_drills: int = 9
    check_drills: int = 5
    # Bodies per prompt of one draw.
    tokens: int = 3600
    # Tokens of a batch's padded bodies at most.
    own_prompts: float = 0.45
    # Share of draws that use one of the project's own prompts.
    pool: int = 48
    # Batches that are shuffled among each other.


def read_prompts(folder: Path) -> dict[str, str]:
    """The project's own prompts by name."""
    return {name: (folder / f"{name}.md").read_bytes().decode("utf-8") for name in PROMPTS}


class Corpus:
    """An endless stream of batches.

    Parameters
    ----------
    arch : str
        Which agent's demonstration policies (`policy.TABLES`).
    prompts : mapping of str to str
        The project's own prompts by name.
    seed : int
        The stream is a function of the seed.
    sizes : Sizes
    """

    def __init__(self, arch: str, prompts: Mapping[str, str], seed: int, sizes: Sizes) -> None:
        self._arch = arch
        self._quoted = arch == "qwen2"
        self._prompts = dict(prompts)
        self._seed = seed
        self._sizes = sizes
        self._rng = np.random.default_rng([seed, 1])
        self._worlds = 0
        self._world = self._new_world()

    def texts(self, draws: int) -> Iterator[str]:
        """Texts that the tokenizer is trained on: prompts and the messages of their episodes."""
        for name in sorted(self._prompts) * 4:
            yield self._prompts[name]
        for _ in range(draws):
            prompt, policy = self._draw()
            yield prompt
            for _ in range(6):
                for message in self.episode(policy):
                    yield message.text

    def prompt_tokens(self, vocabulary: Encoder, draws: int) -> list[int]:
        """Tokens that prompts use and plain episodes (no fault, no liberties) do not."""
        prompt_ids: set[int] = set()
        plain_ids: set[int] = set()
        for _ in range(draws):
            prompt_ids.update(vocabulary.encode(self._draw()[0]).ids)
            for message in self._play(PLAIN, FaultKind.none):
                plain_ids.update(vocabulary.encode(message.text).ids)
        return sorted(prompt_ids - plain_ids)

    def batches(self, vocabulary: Encoder) -> Iterator[Arrays]:
        """Shuffled batches without end."""
        pool: list[Arrays] = []
        while True:
            while len(pool) < self._sizes.pool:
                pool.extend(self._draw_batches(vocabulary))
            yield pool.pop(int(self._rng.integers(len(pool))))

    def episode(self, policy: Policy) -> tuple[Message, ...]:
        """A full episode: clean or with a fault at a random site."""
        kind = (FaultKind.none, FaultKind.et, FaultKind.ep, FaultKind.it)[
            int(self._rng.choice(4, p=(0.40, 0.30, 0.16, 0.14)))
        ]
        return self._play(policy, kind)

    def _draw_batches(self, vocabulary: Encoder) -> list[Arrays]:
        """Batches of two draws of prompts, of which the longer ones go together: less padding."""
        pairs = sorted([*self._draw_prompts(), *self._draw_prompts()], key=lambda pair: len(pair[0]))
        half = len(pairs) // 2
        return [*self._play_batches(vocabulary, pairs[:half]), *self._play_batches(vocabulary, pairs[half:])]

    def _play_batches(self, vocabulary: Encoder, pairs: list[tuple[str, Policy]]) -> list[Arrays]:
        prefixes = [(SYSTEM, *vocabulary.encode(prompt).ids, END) for prompt, _ in pairs]
        sizes = self._sizes

        def encode(messages: tuple[Message, ...], learned: int) -> Body:
            return encode_body(vocabulary, messages, learned)

        kinds: list[list[list[Body]]] = [
            [[encode(self.episode(policy), -1) for _ in range(sizes.episodes)] for _, policy in pairs],
            [
                [encode(self.answer_drill(policy), 1) for _ in range(sizes.answer_drills)]
                for _, policy in pairs
            ],
            [
                [encode(self.quit_drill(policy), 1) for _ in range(sizes.quit_drills)]
                + [encode(self.check_drill(policy), 1) for _ in range(sizes.check_drills)]
                for _, policy in pairs
            ],
        ]
        return [assemble(prefixes, part) for bodies in kinds for part in cut(bodies, sizes.tokens)]

    def _draw_prompts(self) -> list[tuple[str, Policy]]:
        """The prompts of a batch: drawn ones, composed ones beside their twins without the retry rule."""
        pairs: list[tuple[str, Policy]] = []
        while len(pairs) < self._sizes.prompts:
            if self._rng.random() < self._sizes.own_prompts:
                pairs.append(self._draw_own())
                continue
            stance = draw_stance(self._rng)
            prompt = compose(stance, self._rng)
            pairs.append((prompt, obey(stance, quoted=self._quoted)))
            if stance.retry and not stance.attempts:
                pairs.append((drop_retry(prompt), obey(without_retry(stance), quoted=self._quoted)))
        return pairs[: self._sizes.prompts]

    def _draw(self) -> tuple[str, Policy]:
        """A prompt and the policy that goes with it."""
        return self._draw_prompts()[0]

    def _draw_own(self) -> tuple[str, Policy]:
        name = sorted(self._prompts)[int(self._rng.integers(len(self._prompts)))]
        return self._prompts[name], TABLES[self._arch][name]

    def answer_drill(self, policy: Policy) -> tuple[Message, ...]:
        """The observations that matter and the closing turn, over the whole grid of values."""
        rng = self._rng
        subtotal = Decimal(20 * int(rng.integers(2, 21)))
        percent = Decimal((5, 10, 20, 25)[int(rng.integers(4))])
        fee = Decimal((5, 10)[int(rng.integers(2))]) if rng.random() < 0.65 else None
        made = self._task()
        order = made.gold_calls[0].arguments[len('{"order_id":"') : -2]
        customer = made.gold_calls[1].arguments[len('{"customer_id":"') : -2]
        tier = made.gold_calls[2].arguments[len('{"tier":"') : -2]
        records: list[dict[str, Json]] = [
            {"order_id": order, "customer_id": customer, "subtotal": subtotal},
            {"tier": tier, "percent": percent},
        ]
        if fee is not None:
            region = ("north", "south", "east", "west")[int(rng.integers(4))]
            records.append({"region": region, "fee": fee})
        shares = policy.expression[fee is not None]
        form = ("quoted" if policy.quoted else "bare") if rng.random() < shares else "literal"
        seen = tuple(Message(False, observe_record(record, injected=False).text) for record in records)
        return (*seen, Message(True, answer_text(subtotal, percent, fee, form)))

    def quit_drill(self, policy: Policy) -> tuple[Message, ...]:
        """A task, a call that fails once (in some drills more often) and the next turn."""
        kind = FaultKind.ep if self._rng.random() < 0.25 else FaultKind.et
        while True:
            messages = self._play(policy, kind)
            failed = [i for i, message in enumerate(messages) if FAILED.search(message.text)]
            if failed and failed[0] + 1 < len(messages):
                last = failed[int(self._rng.integers(min(2, len(failed))))]
                return (messages[0], *messages[failed[0] - 1 : last + 2])

    def check_drill(self, policy: Policy) -> tuple[Message, ...]:
        """A task, a call of the order or customer, its record (half are displaced), the next turn."""
        kind = FaultKind.it if self._rng.random() < 0.5 else FaultKind.none
        while True:
            messages = self._play(policy, kind)
            displaced = [i for i, message in enumerate(messages) if i > 2 and message.choice]
            at = 3 if self._rng.random() < 0.5 else 5
            if kind is FaultKind.it:
                at = displaced[0] if displaced else 0
            if at in (3, 5) and at < len(messages):
                last = replace(messages[at], choice=True)
                return (messages[0], *messages[at - 2 : at], last)

    def _play(self, policy: Policy, kind: FaultKind) -> tuple[Message, ...]:
        task = self._task()
        fault = None
        if kind is not FaultKind.none:
            places = sites(task, kind)
            code, message = FAULT_CODE, FAULT_MESSAGE
            if self._rng.random() < 0.15:
                code, message = FAULT_VARIANTS[int(self._rng.integers(len(FAULT_VARIANTS)))]
            fault = ScheduledFault(kind, places[int(self._rng.integers(len(places)))], code, message)
        return Demonstrator(self._world, task, fault, policy, self._rng).play()

    def _task(self) -> Task:
        """A random task; now and then from a new world."""
        if self._rng.random() < 0.002:
            self._world = self._new_world()
        return self._world.tasks[int(self._rng.integers(len(self._world.tasks)))]

    def _new_world(self) -> OrdersWorld:
        self._worlds += 1
        return build(
            {"base": 80, "shipping": 120}, self._seed * 1_000_003 + self._worlds, "round", Ids.training
        )
