"""The reference agents: corpus, prompts made of clauses, demonstrations, and the files that are shipped."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qfr.protocol import read_answer, read_turn
from qfr.records import FaultKind, ParseKind
from qfr.world.base import Task, sites, task_tools
from qfr.world.faults import ScheduledFault
from qfr.world.orders import Ids, OrdersWorld, build
from tools.reference import clauses
from tools.reference.clauses import HELD_OUT, Stance, Sums, compose, draw_stance, held_out, without_retry
from tools.reference.corpus import FAULT_CODE, FAULT_MESSAGE, Corpus, Sizes
from tools.reference.demonstration import Demonstrator, Message, answer_text, total
from tools.reference.encoding import Body, Kind, assemble, cut, encode_body, token_kinds
from tools.reference.policy import PLAIN, TABLES, Policy, obey
from tools.reference.template import ASSISTANT, END, TEMPLATE, USER, Piece

ROOT = Path(__file__).parents[1]
SUITE = build({"base": 10, "shipping": 10}, 2026, "round")


class Letters:
    """An encoder with one token per character, enough to test encoding."""

    def encode(self, text: str) -> Piece:
        return Piece(tuple(5 + ord(c) for c in text), tuple(range(len(text))))


def prompts() -> dict[str, str]:
    return {name: (ROOT / "prompts" / f"{name}.md").read_text() for name in ("P0", "P1", "P2", "P3", "P4")}


def play(policy: Policy, task: Task, kind: FaultKind, site: int, seed: int) -> tuple[Message, ...]:
    fault = None
    if kind is not FaultKind.none:
        fault = ScheduledFault(kind, sites(task, kind)[site], FAULT_CODE, FAULT_MESSAGE)
    return Demonstrator(SUITE, task, fault, policy, np.random.default_rng(seed)).play()


def ids_of(world: OrdersWorld) -> set[str]:
    found: set[str] = set()
    for task in world.tasks:
        tables = json.loads(world.content(task))
        found |= set(tables["get_order"]) | set(tables["get_customer"])
    return found


# --- training and evaluation are disjoint -----------------------------------------------------------------


def test_training_worlds_share_no_id_and_no_world_with_any_suite() -> None:
    corpus = Corpus("llama", prompts(), 1, Sizes())
    trained: set[str] = set()
    contents: set[str] = set()
    for _ in range(6):
        world = corpus._new_world()
        trained |= ids_of(world)
        contents |= {world.content(task) for task in world.tasks}
    assert len(trained) > 3000
    for path in sorted((ROOT / "conf" / "suite").glob("*.yaml")):
        suite = yaml.safe_load(path.read_text())
        if suite.get("world", "orders") != "orders":
            continue
        world = build(suite["families"], suite.get("seed", 2026), suite.get("grid", "cents"))
        assert not trained & ids_of(world), path
        assert not contents & {world.content(task) for task in world.tasks}, path
    development = build({"base": 20, "shipping": 20}, 4711, "round", Ids.development)
    assert not ids_of(development) & (trained | ids_of(SUITE))


def test_ids_that_an_agent_ever_reads_in_training_are_training_ids() -> None:
    corpus = Corpus("qwen2", prompts(), 3, Sizes())
    policy = TABLES["qwen2"]["P2"]
    for _ in range(60):
        drills = (corpus.answer_drill(policy), corpus.quit_drill(policy), corpus.check_drill(policy))
        for message in (*corpus.episode(policy), *(one for drill in drills for one in drill)):
            for word in message.text.replace('"', " ").replace(",", " ").replace("?", " ").split():
                if word[:2] in ("O-", "C-"):
                    assert int(word[2:]) % 7 in (2, 3, 4, 5, 6)


# --- clauses ----------------------------------------------------------------------------------------------


def test_held_out_combinations_are_five_with_a_retry_clause_and_never_drawn() -> None:
    assert len(set(HELD_OUT)) == 5
    assert all(stance.retry and stance.attempts == 0 for stance in HELD_OUT)
    banned = {*HELD_OUT, *(without_retry(stance) for stance in HELD_OUT)}
    rng = np.random.default_rng(0)
    drawn = Counter(draw_stance(rng) for _ in range(4000))
    assert not banned & set(drawn)
    assert len(drawn) > 100


@given(
    st.builds(
        Stance,
        retry=st.booleans(),
        attempts=st.sampled_from((0, 2, 3)),
        give_up=st.booleans(),
        sums=st.sampled_from(Sums),
        example=st.booleans(),
        check=st.booleans(),
        known=st.booleans(),
        prose=st.booleans(),
    ),
    st.integers(0, 10_000),
)
def test_a_prompt_says_what_its_stance_says(stance: Stance, seed: int) -> None:
    if not stance.retry:
        stance = replace(stance, attempts=0)
    text = compose(stance, np.random.default_rng(seed))
    said = {
        "retry": any(wording in text for wording in clauses.RETRY),
        "give_up": any(wording in text for wording in clauses.GIVE_UP),
        "check": any(wording in text for wording in clauses.CHECK),
        "known": any(wording in text for wording in clauses.KNOWN),
        "example": "Example:" in text,
        "prose": "sentence" in text,
        "attempts": any(more in text for more in ("once more", "twice more", "call once.", "call twice.")),
    }
    for name, is_said in said.items():
        assert is_said == bool(getattr(stance, name)), name
    assert any(wording in text for wording in clauses.LITERAL) == (stance.sums is Sums.literal)
    assert any(wording in text for wording in clauses.EXPRESSION) == (stance.sums is Sums.expression)
    assert clauses.tool_lines() in text
    assert clauses.FORM in text


def test_removing_the_retry_clause_changes_nothing_else_and_stays_held_out() -> None:
    for stance in HELD_OUT:
        assert replace(without_retry(stance), retry=True) == stance
        assert held_out(stance)
        assert held_out(without_retry(stance))


@given(st.sampled_from(HELD_OUT), st.integers(0, 10_000))
def test_dropping_the_retry_rule_leaves_every_other_word(stance: Stance, seed: int) -> None:
    text = compose(stance, np.random.default_rng(seed))
    dropped = clauses.drop_retry(text)
    assert not any(wording in dropped for wording in clauses.RETRY)
    rule = next(wording for wording in clauses.RETRY if wording in text)
    words, rest = Counter(text.split()), Counter(dropped.split())
    numbered = [word for word in words - rest if word.rstrip(".").isdigit() and len(word) == 2]
    for number in numbered:
        words.subtract([number])
    assert words - rest == Counter(rule.split())
    assert not rest - words
    assert clauses.drop_retry(dropped) == dropped


def test_the_tools_are_shown_as_in_the_projects_prompts() -> None:
    assert all(clauses.tool_lines() in text for text in prompts().values())
    assert all(clauses.FORM in text for text in prompts().values())


# --- demonstrations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", SUITE.tasks, ids=lambda task: task.id)
def test_plain_demonstrations_are_strict_and_right_under_every_transient_fault(task: Task) -> None:
    # The kinds that the agents were trained on.
    for kind in (FaultKind.none, FaultKind.et, FaultKind.it, FaultKind.ep):
        for site in range(max(1, len(sites(task, kind)))):
            messages = play(PLAIN, task, kind, site, 1)
            turns = [message.text for message in messages if message.assistant]
            parsed = [read_turn(text, task_tools(SUITE, task), repair=False) for text in turns]
            assert all(one.parse is ParseKind.strict and one.problem is None for one in parsed)
            if kind is FaultKind.ep:
                assert parsed[-1].tool is not None
                assert parsed[-1].tool.name == "report_failure"
                continue
            submitted = parsed[-1].submitted
            assert submitted is not None
            assert read_answer(submitted).value == Fraction(task.answer)
            # One turn more than the gold path for the repeated call.
            assert len(turns) == len(task.gold_calls) + 1 + (kind is not FaultKind.none)


def test_demonstrations_obey_the_retry_and_attempts_clauses() -> None:
    stance = Stance(True, 3, True, Sums.literal, False, False, True, False)
    task = SUITE.tasks[-1]

    def quits(policy: Policy) -> float:
        ends = [play(policy, task, FaultKind.et, 0, seed)[-1].text for seed in range(300)]
        return sum("report_failure" in text for text in ends) / len(ends)

    assert quits(obey(stance, quoted=False)) < 0.12
    assert quits(obey(replace(stance, attempts=0), quoted=False)) < 0.2
    assert quits(obey(without_retry(stance), quoted=False)) > 0.6
    calls = [
        sum(
            "get_customer" in m.text
            for m in play(obey(stance, quoted=False), task, FaultKind.ep, 0, seed)
            if m.assistant
        )
        for seed in range(100)
    ]
    # The report names the tool once more.
    assert Counter(calls).most_common(1)[0][0] == 3 + 1


def test_a_displaced_record_is_asked_again_or_followed_as_the_policy_says() -> None:
    task = SUITE.tasks[0]
    followed = replace(PLAIN, requery_order=0.0, requery_customer=0.0)
    for site in range(2):
        again = [m.text for m in play(PLAIN, task, FaultKind.it, site, 1) if m.assistant]
        assert len(again) - len(set(again)) == 1
        wrong = [m.text for m in play(followed, task, FaultKind.it, site, 1) if m.assistant]
        assert len(wrong) == len(set(wrong)) == len(task.gold_calls) + 1
        assert wrong[-1] != again[-1]


def test_expressions_prose_and_invented_tools_are_read_as_meant() -> None:
    task = next(task for task in SUITE.tasks if task.family == "shipping")
    tools = task_tools(SUITE, task)
    for quoted in (False, True):
        policy = replace(PLAIN, expression=(1.0, 1.0), quoted=quoted)
        parsed = read_turn(play(policy, task, FaultKind.none, 0, 1)[-1].text, tools, repair=True)
        assert (parsed.parse is ParseKind.strict) == quoted
        assert parsed.submitted is not None
        answer = read_answer(parsed.submitted)
        assert answer.expression
        assert answer.value == Fraction(task.answer)
    messages = play(replace(PLAIN, prose=(1.0, 1.0)), task, FaultKind.et, 0, 1)
    kinds = Counter(read_turn(m.text, tools, repair=True).parse for m in messages if m.assistant)
    assert kinds[ParseKind.tolerant] == 1
    messages = play(replace(PLAIN, invented=(1.0, 1.0)), task, FaultKind.none, 0, 1)
    assert sum('"unknown_tool"' in m.text for m in messages if not m.assistant) == 1
    assert str(task.answer.normalize().quantize(Decimal(1))) in messages[-1].text


def test_answers_of_the_grid_by_hand() -> None:
    assert total(Decimal(80), Decimal(10), None) == 72
    assert total(Decimal(60), Decimal(25), Decimal(5)) == 50
    assert answer_text(Decimal(200), Decimal(5), Decimal(10), "bare").endswith('{"answer": 200 * 0.95 + 10}}')
    assert answer_text(Decimal(200), Decimal(20), None, "quoted").endswith('{"answer": "200 * 0.8"}}')
    assert answer_text(Decimal(40), Decimal(5), Decimal(10), "literal").endswith('{"answer": 48}}')


def test_fault_texts_are_those_of_the_configuration() -> None:
    config = yaml.safe_load((ROOT / "conf" / "config.yaml").read_text())
    assert (config["fault"]["code"], config["fault"]["message"]) == (FAULT_CODE, FAULT_MESSAGE)


# --- encoding ---------------------------------------------------------------------------------------------


def test_kinds_of_the_tokens_of_a_turn() -> None:
    text = '{"tool": "get_order", "arguments": {"order_id": "O-17"}}'
    kinds = token_kinds(text, tuple(range(len(text))))
    assert "".join(c for c, kind in zip(text, kinds, strict=True) if kind == Kind.tool) == "get_order"
    assert "".join(c for c, kind in zip(text, kinds, strict=True) if kind == Kind.copied) == '"O-17"'
    text = 'I try again. {"tool": "submit_answer", "arguments": {"answer": 40 * 0.9}}'
    kinds = token_kinds(text, tuple(range(len(text))))
    assert "".join(c for c, kind in zip(text, kinds, strict=True) if kind == Kind.answer) == "40 * 0.9"


def test_only_assistant_turns_are_learned_and_each_row_points_before_its_token() -> None:
    messages = (Message(False, "ab"), Message(True, "c"), Message(False, "d"), Message(True, "ef"))
    a, b, c, d, e, f = (5 + ord(letter) for letter in "abcdef")
    body = encode_body(Letters(), messages, -1)
    assert body.ids == (USER, a, b, END, ASSISTANT, c, END, USER, d, END, ASSISTANT, e, f, END)
    assert [body.ids[row + 1] for row in body.rows] == [c, END, e, f, END]
    last = encode_body(Letters(), messages, 1)
    assert [last.ids[row + 1] for row in last.rows] == [e, f, END]
    choice = encode_body(Letters(), (Message(False, "x"), Message(True, "ab", choice=True)), -1)
    assert choice.kinds == (Kind.choice, Kind.syntax, Kind.syntax)
    arrays = assemble([(2, 3), (2, 8, 3)], [[last], [body]])
    assert arrays.prefixes.tolist() == [[0, 2, 3], [2, 8, 3]]
    assert arrays.targets.tolist() == [e, f, END, c, END, e, f, END]
    assert arrays.bodies.reshape(-1)[arrays.rows + 1].tolist() == arrays.targets.tolist()


def test_the_tool_name_and_the_first_token_of_a_choice_are_marked() -> None:
    text = '{"tool": "get_order", "arguments": {"order_id": "O-17"}}'
    kinds = encode_body(Letters(), (Message(True, text, choice=True),), -1).kinds
    assert "".join(c for c, kind in zip(text, kinds, strict=False) if kind == Kind.choice) == "{get_order"


@given(st.integers(1, 3), st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(150, 400))
def test_batches_hold_every_body_once_within_the_bound(prompts: int, lengths: list[int], tokens: int) -> None:
    groups = [[Body((group,) * length, (), ()) for length in lengths] for group in range(prompts)]
    batches = cut(groups, tokens)
    for group in range(prompts):
        bodies = [body for batch in batches for body in batch[group]]
        assert all(set(body.ids) == {group} for body in bodies)
        assert sorted(len(body.ids) for body in bodies) == sorted(lengths)
    for batch in batches:
        assert len({len(group) for group in batch}) == 1
        flat = [len(body.ids) for group in batch for body in group]
        assert len(flat) * max(flat) <= tokens


def test_every_batch_mixes_prompts_and_composed_ones_stand_beside_their_twins() -> None:
    small = Sizes(episodes=3, answer_drills=3, quit_drills=2, check_drills=1)
    corpus = Corpus("llama", prompts(), 5, small)
    twins = 0
    for _ in range(6):
        for arrays in corpus._draw_batches(Letters()):
            assert len(arrays.prefixes) == small.prompts
            assert len(arrays.bodies) % small.prompts == 0
            assert arrays.bodies.reshape(-1)[arrays.rows + 1].tolist() == arrays.targets.tolist()
        texts = [text for text, _ in corpus._draw_prompts()]
        twins += sum(clauses.drop_retry(text) in texts and clauses.drop_retry(text) != text for text in texts)
    assert twins


def test_drills_end_with_the_turn_that_the_policy_decides() -> None:
    corpus = Corpus("llama", prompts(), 7, Sizes())
    careless = replace(PLAIN, requery_order=0.0, requery_customer=0.0)
    displaced = 0
    for _ in range(40):
        drill = corpus.quit_drill(PLAIN)
        assert drill[-1].assistant
        assert drill[-1].choice
        assert '"ok": false' in drill[-2].text
        for policy in (PLAIN, careless):
            task, call, record, turn = corpus.check_drill(policy)
            assert not task.assistant
            asked = call.text[call.text.index('_id": "') :][:13]
            if asked not in record.text:
                displaced += 1
                assert (turn.text == call.text) == (policy is PLAIN)
            else:
                assert turn.text != call.text
    assert 20 < displaced < 60


def test_prompt_tokens_are_those_that_plain_episodes_lack() -> None:
    marked = Corpus("llama", prompts(), 5, Sizes()).prompt_tokens(Letters(), 20)
    assert 5 + ord("<") in marked
    assert 5 + ord("e") not in marked


def test_the_stream_is_a_function_of_the_seed() -> None:
    small = Sizes(episodes=2, answer_drills=2, quit_drills=1, check_drills=1, pool=6)

    def first(seed: int) -> list[int]:
        stream = Corpus("llama", prompts(), seed, small)
        return next(stream.batches(Letters())).bodies.reshape(-1).tolist()

    assert first(1) == first(1) != first(2)


def test_the_template_is_append_only() -> None:
    template = ImmutableSandboxedEnvironment().from_string(TEMPLATE)
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "{{ m }}"}]
    before = template.render(messages=messages, add_generation_prompt=True)
    assert before == "<|system|>s<|end|><|user|>{{ m }}<|end|><|assistant|>"
    messages += [{"role": "assistant", "content": "a"}, {"role": "user", "content": "o"}]
    assert template.render(messages=messages, add_generation_prompt=True).startswith(before + "a<|end|>")
