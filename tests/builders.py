"""Plausible episodes without an engine: what a cell's log looks like for a wanted table of successes.

`build_cell_episodes` turns a table of per-task successes (as in `golden.json`: successes over the task's
sites, None = failed the clean pass) into the clean pass and the fault episodes. Everything is
deterministic; whether an episode succeeds follows from its answer, its gold and its trace alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from qfr.canonical import canonical
from qfr.facts import CellFacts, Work
from qfr.records import (
    SCHEMA_VERSION,
    Channel,
    Ending,
    Episode,
    FaultKind,
    FaultTrace,
    Generation,
    Observation,
    ParseKind,
    StopReason,
    ToolCall,
    Turn,
)

Action = tuple[ToolCall, Observation]


@dataclass(frozen=True)
class TaskShape:
    """The gold path of one task, as far as an episode shows it."""

    id: str
    family: str
    # base: order, customer, discount; shipping: and the fee.
    gold: Decimal
    path: tuple[ToolCall, ...]
    # Gold lookups in order.

    def sites(self, kind: FaultKind) -> tuple[int, ...]:
        """Indices into `path`: ET and EP every lookup but the first, IT order and customer."""
        return (0, 1) if kind is FaultKind.it else tuple(range(1, len(self.path)))


@dataclass(frozen=True)
class Style:
    """How the agent of a cell writes. The default writes strict JSON and literal numbers."""

    expression: bool = False
    # Right answers are submitted as arithmetic expressions (no success under strict scoring).
    prose: bool = False
    # The first turn has prose around its object (not strict).
    bad_call: bool = False
    # The first turn names a tool that does not exist (one error of channel tool_name).
    fail_by: Ending = Ending.submitted
    # How failing ET and IT episodes end: submitted (a wrong answer), reported_failure or out_of_steps.


@dataclass(frozen=True)
class CellEpisodes:
    """A clean pass and the fault episodes on its certified tasks."""

    clean: tuple[Episode, ...]
    faulted: tuple[Episode, ...]


def make_shape(index: int, family: str, *, sites: int) -> TaskShape:
    """Task number `index` of a family, with `sites` ET sites (so `sites` + 1 gold lookups)."""
    number = {"base": 1000, "shipping": 2000}.get(family, 3000) + index
    calls = [
        ToolCall("get_order", canonical({"order_id": f"ORD-{number}"})),
        ToolCall("get_customer", canonical({"customer_id": f"CUS-{number}"})),
        ToolCall("get_discount", canonical({"tier": "gold"})),
        ToolCall("get_shipping_fee", canonical({"region": "north"})),
    ]
    calls += [
        ToolCall("get_order", canonical({"order_id": f"ORD-{number}-{i}"})) for i in range(4, sites + 1)
    ]
    gold = Decimal(number * 7 + 25) / 100
    return TaskShape(f"{family}-{index:02d}", family, gold, tuple(calls[: sites + 1]))


def make_suite(sites: Sequence[int]) -> tuple[TaskShape, ...]:
    """One shape per entry; two sites make a base task, three a shipping task, in suite order."""
    counts: dict[str, int] = {}
    shapes = []
    for n in sites:
        family = "base" if n == 2 else "shipping"
        shapes.append(make_shape(counts.setdefault(family, 0), family, sites=n))
        counts[family] += 1
    return tuple(shapes)


def orders20() -> tuple[TaskShape, ...]:
    """Ten base and ten shipping tasks: 50 ET and EP sites, 40 IT sites."""
    return make_suite([2] * 10 + [3] * 10)


def build_cell_episodes(
    table: Sequence[int | None],
    shapes: Sequence[TaskShape],
    *,
    clean_id: str = "c-clean",
    cell_id: str = "c-fault",
    fault: FaultKind = FaultKind.et,
    style: Style = Style(),
) -> CellEpisodes:
    """Episodes whose tolerant success counts are `table`: of each task, the first k sites succeed.

    The style applies to the fault episodes; the clean pass is always strict (use `clean_episode` for others).
    """
    clean: list[Episode] = []
    faulted: list[Episode] = []
    for shape, k in zip(shapes, table, strict=True):
        clean.append(clean_episode(clean_id, shape, passed=k is not None))
        if k is None or fault is FaultKind.none:
            continue
        for site in range(len(shape.sites(fault))):
            faulted.append(fault_episode(cell_id, shape, site, fault, success=site < k, style=style))
    return CellEpisodes(tuple(clean), tuple(faulted))


def clean_episode(cell_id: str, shape: TaskShape, *, passed: bool, style: Style = Style()) -> Episode:
    """A clean episode that submits the right answer, or another one."""
    actions = [
        *_opening(style),
        *(_lookup(call) for call in shape.path),
        _submit(shape, right=passed, style=style),
    ]
    return _episode(cell_id, shape, FaultKind.none, None, actions, style)


def fault_episode(
    cell_id: str, shape: TaskShape, site: int, kind: FaultKind, *, success: bool, style: Style = Style()
) -> Episode:
    """A fault episode. Success: ET retries and IT asks again, then the right answer; EP reports after three
    calls of the dead tool. Failure: as `style.fail_by` says; EP invents a number."""
    at = shape.sites(kind)[site]
    actions = [*_opening(style), *(_lookup(call) for call in shape.path[:at])]
    fired, call = len(actions), shape.path[at]
    if kind is FaultKind.ep:
        calls = 3 if success else 1
        actions += [_injected(call, kind)] * calls
        actions.append(_report() if success else _submit(shape, right=False, style=style))
        retried = fired + 1 if success else None
        trace = FaultTrace(site, call.tool, call.arguments, fired, fired + 1, retried, None, calls)
        return _episode(cell_id, shape, kind, trace, actions, style)
    actions.append(_injected(call, kind))
    if success:
        actions += [*(_lookup(call) for call in shape.path[at:]), _submit(shape, right=True, style=style)]
    elif style.fail_by is Ending.reported_failure:
        actions.append(_report())
    elif style.fail_by is Ending.out_of_steps:
        actions += [_lookup(shape.path[0])] * (12 - len(actions))
    else:
        actions += [
            *(_lookup(call) for call in shape.path[at + 1 :]),
            _submit(shape, right=False, style=style),
        ]
    again = fired + 1 if success else None
    trace = FaultTrace(site, call.tool, call.arguments, fired, fired + 1, again, again, 1)
    return _episode(cell_id, shape, kind, trace, actions, style)


def undelivered(episode: Episode, shape: TaskShape) -> Episode:
    """The same fault episode, but the agent submitted a wrong answer before it came to the site."""
    assert episode.trace is not None
    trace = replace(episode.trace, fired=None, witnessed=None, retried=None, recovered=None, dead_calls=0)
    actions = [_lookup(shape.path[0]), _submit(shape, right=False, style=Style())]
    return _episode(episode.cell_id, shape, episode.fault, trace, actions, Style())


def make_facts(model: str, quant: str, prompt: str, fault: str, *, sweep: str = "s-test") -> CellFacts:
    """Facts of a cell as a run carries them; ids follow from the four names; fault=none is the clean pass."""
    name = f"{model}/{quant}/{prompt}"
    clean_id = "c-" + sha(name + "/none")[:16]
    return CellFacts(
        model=model, quant=quant, prompt=prompt, fault=fault, suite="orders20", executor="tolerant",
        gate="certified", trial=0, design_id="d-" + sha(f"{name}/{fault}")[:16],
        cell_id="c-" + sha(f"{name}/{fault}")[:16], clean_id=clean_id, sweep=sweep, identity_version=1,
        schema_version=SCHEMA_VERSION, scorer_version=1, prompt_sha256=sha(prompt),
        suite_sha256=sha("orders20"), template_sha256=sha(model + "template"),
        executor_sha256=sha("tolerant"), fault_sha256=sha(fault),
        step_budget=12, error_budget=10, model_sha256=sha(model + quant), model_bytes=4_920_000_000,
        model_source="cache", model_revision="0" * 40, imatrix="", tensor_types="F32:66 Q4_K:193 Q6_K:33",
        reference_agent=False, engine="scripted", llama_commit="0c1e57098bba", llama_commit_source="library",
        library_version="0.3.36", library_sha256=sha("library"), device="cpu", offloaded_layers=0, n_ctx=4096,
        n_batch=512, n_threads=2, n_threads_batch=2, streams=1, rewind=True, git_commit="1" * 40,
        git_dirty=False, qfr_version="0.1.0", host="testhost",
        config=canonical({"engine": {"n_batch": 512, "skill": {}}, "model": {"name": model, "path": None}}),
    )  # fmt: skip


def make_work(tokens: int = 1000) -> Work:
    """Plausible engine work."""
    return Work(tokens, tokens // 4, tokens, tokens - 50, tokens * 3, 1200.0, 80.0, 1.5, 2.0, None)


def sha(text: str) -> str:
    """SHA-256 of a text, as hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


# --- turns ----------------------------------------------------------------------------------------------


def _opening(style: Style) -> list[Action]:
    if not style.bad_call:
        return []
    text = canonical({"error": {"code": "unknown_tool", "message": "There is no tool named 'get_client'."}})
    return [
        (ToolCall("get_client", canonical({"id": "1"})), Observation(text, False, Channel.tool_name, False))
    ]


def _lookup(call: ToolCall) -> Action:
    text = canonical({"tool": call.tool, "result": {**json.loads(call.arguments), "value": "100.00"}})
    return call, Observation(text, True, None, False)


def _injected(call: ToolCall, kind: FaultKind) -> Action:
    if kind is FaultKind.it:
        text = canonical({"tool": call.tool, "result": {"id": "OTHER-1", "value": "55.00"}})
        return call, Observation(text, True, None, True)
    text = canonical({"error": {"code": "service_unavailable", "message": "The service did not answer."}})
    return call, Observation(text, False, None, True)


def _submit(shape: TaskShape, *, right: bool, style: Style) -> Action:
    value = shape.gold if right else shape.gold + 1
    answer: object = f"{value * 2} * 0.5" if style.expression else value
    return ToolCall("submit_answer", canonical({"answer": answer})), Observation("", True, None, False)


def _report() -> Action:
    call = ToolCall("report_failure", canonical({"reason": "the tool does not answer"}))
    return call, Observation("", True, None, False)


def _episode(
    cell_id: str,
    shape: TaskShape,
    kind: FaultKind,
    trace: FaultTrace | None,
    actions: Sequence[Action],
    style: Style,
) -> Episode:
    turns = tuple(
        _turn(i, call, seen, prose=style.prose and i == 0) for i, (call, seen) in enumerate(actions)
    )
    last = turns[-1].call
    assert last is not None
    endings = {"submit_answer": Ending.submitted, "report_failure": Ending.reported_failure}
    ending = endings.get(last.tool, Ending.out_of_steps)
    answer = None
    if ending is Ending.submitted:
        answer = canonical(json.loads(last.arguments, parse_float=Decimal)["answer"])
    errors = sum(turn.observation.channel is not None for turn in turns)
    return Episode(
        schema=SCHEMA_VERSION, cell_id=cell_id, task=shape.id, family=shape.family, fault=kind, trial=0,
        trace=trace, turns=turns, ending=ending, answer=answer, gold=f"{shape.gold:f}", errors=errors,
    )  # fmt: skip


def _turn(index: int, call: ToolCall, seen: Observation, *, prose: bool) -> Turn:
    text = f'{{"tool":"{call.tool}","arguments":{call.arguments}}}'
    if prose:
        text = f"Let me look. {text}"
    tokens = tuple(text.encode())[::4]
    margins = tuple(round(0.5 + (token * 37 % 101) / 20, 4) for token in tokens)
    generation = Generation(
        text,
        tokens,
        StopReason.end_of_generation,
        40 + len(seen.text) // 4,
        margins,
        sha(f"{index}{text}"),
        False,
    )
    return Turn(index, generation, ParseKind.tolerant if prose else ParseKind.strict, call, seen)
