"""The corpus of `ref_hermes`: native tool calls in Hermes form on two worlds, and the text protocol beside.

An episode is demonstrated in the text protocol, as for the other agents, and written in the template's own
form: a call in `<tool_call>` tags, a result in `<tool_response>` tags. On the ledger world the agent learns
the family `pay`: look up, pay, finish; whether it looks before it pays again is a clause of the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy.random import Generator

from qfr.canonical import Json, read_json
from qfr.episode import observe_answer
from qfr.protocol import FORM_BLOCK, read_turn
from qfr.records import FaultKind, Tool
from qfr.world.base import Found, Suite, Task, World, sites, task_tools
from qfr.world.faults import Failed, Injector, ScheduledFault
from qfr.world.ledger import of_suite
from qfr.world.tools import COMMON
from tools.reference import clauses
from tools.reference.clauses import Stance, Sums, draw_stance, drop_retry, without_retry
from tools.reference.corpus import FAULT_CODE, FAULT_MESSAGE, FAULT_VARIANTS, Corpus, Sizes
from tools.reference.demonstration import Message, call_text
from tools.reference.encoding import Arrays, Body, assemble, cut, encode_body
from tools.reference.policy import HERMES, Policy, obey
from tools.reference.template import CALL_BLOCK, END, RESPONSE, SYSTEM, Encoder

NATIVE = ("N0", "N1", "N2", "N3", "N4")
LEDGER = ("NL0", "NL1")
PREFIX = "Observation: "
SHARES = (0.45, 0.20, 0.35)
# Of prompts: orders in native form, orders in the text protocol, ledger in native form.

BILLING = (
    "You are a billing agent. Solve the task by calling tools.",
    "You pay invoices with tools.",
    "Billing agent.",
    "You work in accounting. Use the tools to do what the task asks.",
)
LOOK = (
    "A call that failed may have happened all the same: before you pay or refund again, look whether it did.",
    "Before you repeat a payment that failed, check with list_payments whether it was made.",
    "A failed payment may have been made: look before you pay again.",
    "Check before you repeat a payment.",
)
NUMBERS = (
    "Numbers must be literal, such as 72 or 72.50, not expressions.",
    "Write numbers literally.",
)


@dataclass(frozen=True)
class Billing:
    """What a ledger prompt asks for."""

    retry: bool
    look: bool
    # Look whether a payment was made before it is repeated.


@dataclass(frozen=True)
class Scene:
    """A system message as it is evaluated, and how the agent behaves under it."""

    system: str
    native: bool
    policy: Policy | Billing


def native_block(tools: Sequence[Tool]) -> str:
    """What the chat template appends to the system message."""
    lines = "".join(f"\n- {tool.signature}: {tool.doc}" for tool in tools)
    return f"\n\nTools:{lines}{CALL_BLOCK}"


def text_block(tools: Sequence[Tool]) -> str:
    """What the text protocol appends to a bare prompt."""
    lines = "\n".join(f"- {tool.signature}: {tool.doc}" for tool in tools)
    return f"Tools:\n{lines}\n\n{FORM_BLOCK}"


def native(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Messages of the text protocol in Hermes form."""
    return tuple(_native(message) for message in messages)


def _native(message: Message) -> Message:
    if not message.assistant:
        if not message.text.startswith(PREFIX):
            return message
        head, tail = RESPONSE
        return Message(False, f"{head}{message.text.removeprefix(PREFIX)}{tail}")
    said, brace, rest = message.text.partition("{")
    text = f"{brace}{rest}".replace('{"tool": ', '{"name": ', 1)
    return Message(True, f"{said}<tool_call>\n{text}\n</tool_call>", message.choice)


class Payer:
    """Demonstrates one task of the family `pay`."""

    def __init__(
        self, world: World, task: Task, fault: ScheduledFault | None, asked: Billing, rng: Generator
    ) -> None:
        self._task, self._asked, self._rng = task, asked, rng
        self._tools = task_tools(world, task)
        self._injector = Injector(world, task, fault)
        self.messages = [Message(False, task.text)]

    def play(self) -> tuple[Message, ...]:
        """The messages of the episode, task first."""
        for call in self._task.gold_calls:
            arguments = read_json(call.arguments)
            assert isinstance(arguments, dict)
            if not self._carried_out(call.tool, arguments, writes=call.writes):
                self._say(call_text("report_failure", {"reason": f"{call.tool} failed"}), choice=True)
                return tuple(self.messages)
        self._say(call_text("finish", {}), choice=self._failed)
        return tuple(self.messages)

    _failed = False
    # The last call failed, so that the next turn is a choice.

    def _carried_out(self, tool: str, arguments: Mapping[str, Json], *, writes: bool) -> bool:
        """Call until it is done; False where it is given up."""
        for attempt in range(3):
            if attempt and writes and self._asked.look:
                payments = self._call("list_payments", {"invoice_id": arguments["invoice_id"]})
                if payments is not None and payments["payments"]:
                    self._failed = True
                    return True
                self._failed = True
            if self._call(tool, arguments) is not None:
                return True
            if not self._asked.retry and self._rng.random() < 0.95:
                return False
        return False

    def _call(self, tool: str, arguments: Mapping[str, Json]) -> Mapping[str, Json] | None:
        text = call_text(tool, arguments)
        self._say(text, choice=self._failed)
        turn = len(self.messages) // 2 - 1
        self._injector.saw(turn)
        parsed = read_turn(text, self._tools, repair=True)
        assert parsed.call is not None, parsed.problem
        answered = self._injector.answer(turn, parsed.call, parsed.arguments)
        self.messages.append(Message(False, observe_answer(answered).text))
        self._failed = isinstance(answered.outcome, Failed)
        return answered.outcome.record if isinstance(answered.outcome, Found) else None

    def _say(self, text: str, *, choice: bool) -> None:
        self.messages.append(Message(True, text, choice))


def compose_native(stance: Stance, rng: Generator) -> str:
    """A bare prompt for a stance: no tools, no form of a call."""

    def pick(wordings: tuple[str, ...]) -> str:
        return wordings[int(rng.integers(len(wordings)))]

    rules: list[str] = []
    if stance.retry:
        rule = pick(clauses.RETRY)
        if stance.attempts:
            rule += " " + pick(clauses.ATTEMPTS).replace("{more}", clauses.MORE[stance.attempts])
        rules.append(rule)
    if stance.give_up:
        rules.append(pick(clauses.GIVE_UP))
    if stance.sums is not Sums.unsaid:
        rules.append(pick(clauses.LITERAL if stance.sums is Sums.literal else clauses.EXPRESSION))
    if stance.check:
        rules.append(pick(clauses.CHECK))
    if stance.prose:
        rules.append("You may write one short sentence before a call.")
    rules.extend(sorted({pick(clauses.FILLERS) for _ in range(int(rng.integers(0, 3)))}))
    return _laid_out(pick(clauses.OPENINGS), rules, rng)


def compose_billing(asked: Billing, rng: Generator) -> str:
    """A bare prompt of the ledger world."""

    def pick(wordings: tuple[str, ...]) -> str:
        return wordings[int(rng.integers(len(wordings)))]

    rules = [pick(clauses.RETRY)] if asked.retry else []
    rules += [pick(LOOK)] if asked.look else []
    rules += [pick(clauses.GIVE_UP)] if rng.random() < 0.5 else []
    rules += [pick(NUMBERS)] if rng.random() < 0.5 else []
    rules += sorted({pick(clauses.FILLERS) for _ in range(int(rng.integers(0, 2)))})
    return _laid_out(pick(BILLING), rules, rng)


def _laid_out(opening: str, rules: Sequence[str], rng: Generator) -> str:
    ordered = [rules[i] for i in rng.permutation(len(rules))]
    layout = rng.random()
    if layout < 0.34:
        text = " ".join([opening, *ordered])
    elif layout < 0.67:
        text = "\n".join([opening, *ordered])
    else:
        text = f"{opening}\n\nRules:\n" + "\n".join(f"{i}. {rule}" for i, rule in enumerate(ordered, 1))
    return text + "\n" if rng.random() < 0.5 else text


class HermesCorpus(Corpus):
    """An endless stream of batches for `ref_hermes`.

    Parameters
    ----------
    prompts : mapping of str to str
        P0 to P4.
    folder : Path
        Of the prompts N0 to N4, NL0 and NL1.
    seed : int
        The stream is a function of the seed.
    """

    def __init__(self, prompts: Mapping[str, str], folder: Path, seed: int) -> None:
        super().__init__("qwen2", prompts, seed, Sizes(own_prompts=0.5))
        self._bare = {name: (folder / f"{name}.md").read_text("utf-8") for name in (*NATIVE, *LEDGER)}
        self._ledgers = 0
        self._ledger = self._new_ledger()
        self._ledger_tools = task_tools(self._ledger, self._ledger.tasks[0])

    def _draw_batches(self, vocabulary: Encoder) -> list[Arrays]:
        scenes: list[Scene] = []
        while len(scenes) < 2 * self._sizes.prompts:
            scenes.extend(self._scenes())
        scenes = sorted(scenes[: 2 * self._sizes.prompts], key=lambda one: len(one.system))
        half = self._sizes.prompts
        return [*self._encoded(vocabulary, scenes[:half]), *self._encoded(vocabulary, scenes[half:])]

    def _scenes(self) -> list[Scene]:
        """One prompt, or a composed one beside its twin without the clause that matters most."""
        which = int(self._rng.choice(3, p=SHARES))
        if which == 2:
            return self._billing_scenes()
        own = self._rng.random() < self._sizes.own_prompts
        if which == 1 and self._rng.random() < 0.5:
            return [Scene(prompt, False, policy) for prompt, policy in self._draw_prompts()[:1]]
        if own:
            name = NATIVE[int(self._rng.integers(len(NATIVE)))]
            found = [(self._bare[name], HERMES[name])]
        else:
            stance = draw_stance(self._rng)
            text = compose_native(stance, self._rng)
            found = [(text, obey(stance, quoted=True))]
            if stance.retry and not stance.attempts:
                found.append((drop_retry(text), obey(without_retry(stance), quoted=True)))
        if which == 1:
            block = text_block(COMMON)
            return [Scene(f"{text.rstrip()}\n\n{block}\n", False, policy) for text, policy in found]
        return [Scene(text + native_block(COMMON), True, policy) for text, policy in found]

    def _billing_scenes(self) -> list[Scene]:
        block = native_block(self._ledger_tools)
        if self._rng.random() < 0.4:
            return [
                Scene(self._bare[name] + block, True, Billing(True, look))
                for name, look in zip(LEDGER, (True, False), strict=True)
            ]
        retry = bool(self._rng.random() < 0.75)
        asked = Billing(retry, bool(self._rng.random() < 0.5) and retry)
        text = compose_billing(asked, self._rng)
        found = [Scene(text + block, True, asked)]
        if asked.look:
            without = next(text.replace(one, "") for one in LOOK if one in text)
            found.append(Scene(without + block, True, Billing(True, False)))
        return found

    def _encoded(self, vocabulary: Encoder, scenes: Sequence[Scene]) -> list[Arrays]:
        prefixes = [(SYSTEM, *vocabulary.encode(scene.system).ids, END) for scene in scenes]
        sizes = self._sizes
        kinds: list[list[list[Body]]] = [
            [[self._body(vocabulary, scene, which) for _ in range(count)] for scene in scenes]
            for which, count in (
                ("episode", sizes.episodes),
                ("answer", sizes.answer_drills),
                ("quit", sizes.quit_drills),
                ("check", sizes.check_drills),
            )
        ]
        kinds[2:] = [[a + b for a, b in zip(kinds[2], kinds[3], strict=True)]]
        return [assemble(prefixes, part) for bodies in kinds for part in cut(bodies, sizes.tokens)]

    def _body(self, vocabulary: Encoder, scene: Scene, which: str) -> Body:
        """One episode or drill under a scene."""
        learned = -1 if which == "episode" else 1
        if isinstance(scene.policy, Billing):
            messages = self._paid(scene.policy, which)
        elif which == "episode":
            messages = self.episode(scene.policy)
        else:
            drill = {"answer": self.answer_drill, "quit": self.quit_drill, "check": self.check_drill}[which]
            messages = drill(scene.policy)
        return encode_body(vocabulary, native(messages) if scene.native else messages, learned)

    def _paid(self, asked: Billing, which: str) -> tuple[Message, ...]:
        """An episode of the ledger, or its turns around a failed call."""
        while True:
            kinds = (FaultKind.none, FaultKind.et, FaultKind.la, FaultKind.ep)
            weights = (0.4, 0.25, 0.25, 0.1) if which == "episode" else (0.0, 0.4, 0.5, 0.1)
            kind = FaultKind.none if which == "answer" else kinds[int(self._rng.choice(4, p=weights))]
            messages = self._payment(kind, asked)
            if which == "episode":
                return messages
            if which == "answer":
                # The task and both records, then the payment.
                return messages[:6]
            failed = [at for at, one in enumerate(messages) if '"ok": false' in one.text]
            if failed and failed[0] + 1 < len(messages):
                end = min(len(messages), failed[0] + (2 if self._rng.random() < 0.5 else 4))
                end -= end % 2
                return (messages[0], *messages[failed[0] - 1 : max(end, failed[0] + 2)])

    def _payment(self, kind: FaultKind, asked: Billing) -> tuple[Message, ...]:
        if self._rng.random() < 0.01:
            self._ledger = self._new_ledger()
        tasks = self._ledger.tasks
        task, fault = tasks[int(self._rng.integers(len(tasks)))], None
        if kind is not FaultKind.none:
            places = sites(task, kind)
            code, message = FAULT_CODE, FAULT_MESSAGE
            if self._rng.random() < 0.15:
                code, message = FAULT_VARIANTS[int(self._rng.integers(len(FAULT_VARIANTS)))]
            fault = ScheduledFault(kind, places[int(self._rng.integers(len(places)))], code, message)
        return Payer(self._ledger, task, fault, asked, self._rng).play()

    def _new_ledger(self) -> World:
        self._ledgers += 1
        return of_suite(Suite({"pay": 120}, seed=self._seed * 1_000_003 + self._ledgers, grid="round"))
