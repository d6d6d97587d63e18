"""Are forks exact? Episodes that fork by taking the cache back, against the same episodes evaluated afresh.

What an episode's logits are must not depend on what was played before it. Whether a fork leaves the very bits
depends on the file's architecture, the build of llama.cpp, the device and the settings, so it is tried: a few
short scripted episodes, each played into an empty cache and each as a fork of another. Every logit vector of
their turns counts, by its digest. Where one differs the engine does without forks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

from qfr.engine.base import Ask, Exactness
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.streams import LlamaStreams
from qfr.errors import EngineError
from qfr.records import Generation

# A turn that is written by force, and what it is told.
_Step = tuple[str, str]

_SYSTEM = (
    "In each turn write exactly one JSON object. Tools: get_order(order_id), get_customer(customer_id), "
    "submit_answer(answer). A tool may fail; a call may be repeated."
)
_TASK = "Order 4711: what does the customer pay?"
_ORDER, _CUSTOMER = '{"tool": "get_order"}', '{"tool": "get_customer"}'
_FAULT = '{"ok": false, "error": "the service did not answer"}'
_CLEAN: tuple[_Step, ...] = (
    (_ORDER, '{"ok": true, "order_id": 4711, "customer_id": 17, "subtotal": 120.5}'),
    (_CUSTOMER, '{"ok": true, "customer_id": 17, "tier": "gold"}'),
)
# A clean episode and two forks of it: a late one, and an early one that goes on otherwise.
_EPISODES: tuple[tuple[_Step, ...], ...] = (
    _CLEAN,
    (_CLEAN[0], (_CUSTOMER, _FAULT)),
    ((_ORDER, _FAULT), _CLEAN[0]),
)
# Tokens of the last turn of each, which the model writes itself.
_OWN_TOKENS = 4
_FORCED_TOKENS = 200

_Play = Callable[[int, tuple[_Step, ...]], tuple[Generation, ...]]


def examine(engine: LlamaEngine | LlamaStreams) -> Exactness:
    """Try an engine. What it held of earlier episodes is gone afterwards.

    Raises
    ------
    EngineError
        Non-finite logits, a failed decode.
    """
    started = time.perf_counter()
    if not engine.info.rewind:
        return Exactness(False, 0, "the cache of this model cannot be taken back", 0.0)
    play = _one(engine) if isinstance(engine, LlamaEngine) else _streams(engine)
    fresh = []
    for steps in _EPISODES:
        engine.start_over()
        fresh.append(play(0, steps))
    engine.start_over()
    difference, turns = "", 0
    # The clean episode first, its forks, and the clean episode again.
    for number, place in enumerate((0, 1, 2, 0)):
        try:
            forked = play(number, _EPISODES[place])
        except EngineError as error:
            # Fresh it could be played: what the fork left cannot be gone on with.
            difference = difference or f"episode {place}: {error.what.splitlines()[0]}"
            break
        for turn, (one, other) in enumerate(zip(fresh[place], forked, strict=True)):
            turns += 1
            if one != other and not difference:
                same = "the same text" if one.token_ids == other.token_ids else "another text"
                difference = f"episode {place}, turn {turn}: {same}, other logits"
    engine.start_over()
    return Exactness(not difference, turns, difference, round(time.perf_counter() - started, 3))


def _one(engine: LlamaEngine) -> _Play:
    def play(_number: int, steps: tuple[_Step, ...]) -> tuple[Generation, ...]:
        turns = [engine.begin(_SYSTEM, _TASK, _FORCED_TOKENS, steps[0][0])]
        for (_, told), (forced, _) in pairwise(steps):
            turns.append(engine.reply(told, _FORCED_TOKENS, forced))
        return (*turns, engine.reply(steps[-1][1], _OWN_TOKENS))

    return play


def _streams(engine: LlamaStreams) -> _Play:
    def play(number: int, steps: tuple[_Step, ...]) -> tuple[Generation, ...]:
        # By turns in the first stream (rewound) and in the others (copied into).
        stream = number % engine.streams
        asks = [Ask(stream, _SYSTEM, _TASK, _FORCED_TOKENS, steps[0][0])]
        for (_, told), (forced, _) in pairwise(steps):
            asks.append(Ask(stream, None, told, _FORCED_TOKENS, forced))
        asks.append(Ask(stream, None, steps[-1][1], _OWN_TOKENS))
        turns = tuple(engine.advance((ask,))[0].generation for ask in asks)
        if number == 0:
            engine.keep()
        return turns

    return play
