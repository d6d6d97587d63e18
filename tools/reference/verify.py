"""Greedy turns of the PyTorch weights, to compare with what llama.cpp makes of the exported file.

``python tools/reference/verify.py --arch llama --weights CHECKPOINT --tokenizer FILE --out FILE`` writes
openings of episodes on development tasks and the tokens that follow; the tests replay it through the engine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as fn

from qfr.records import FaultKind
from qfr.world.base import sites
from qfr.world.faults import ScheduledFault
from tools.reference.corpus import FAULT_CODE, FAULT_MESSAGE, read_prompts
from tools.reference.demonstration import Demonstrator, Message
from tools.reference.encoding import encode_body
from tools.reference.model import Shape, Weights, hidden
from tools.reference.policy import TABLES
from tools.reference.quality import DEVELOPMENT_SEED, development
from tools.reference.template import ASSISTANT, END, SYSTEM
from tools.reference.tokenizer import Vocabulary


@dataclass(frozen=True)
class Opening:
    """The beginning of an episode and the turn that PyTorch writes next."""

    prompt: str
    # Name of the system prompt.
    messages: tuple[str, ...]
    # Task, turn, observation, turn, ... ending with a task or an observation.
    token_ids: tuple[int, ...]
    # Greedy tokens of the next turn, the end token included.
    text: str


def greedy(weights: Weights, shape: Shape, prefix: list[int], body: list[int], limit: int) -> tuple[int, ...]:
    """Greedy continuation in float32, the lowest id on ties."""
    out: list[int] = []
    start = torch.tensor([prefix])
    while len(out) < limit and (not out or out[-1] != END):
        ids = torch.tensor([body + out])
        rows = torch.tensor([ids.shape[1] - 1])
        states = hidden(weights, shape, start, ids, rows, torch.float32)
        out.append(int(fn.linear(states, weights["output.weight"]).argmax()))
    return tuple(out)


def openings(
    weights: Weights, shape: Shape, vocabulary: Vocabulary, prompts: dict[str, str], number: int
) -> list[Opening]:
    """Greedy turns after demonstrated openings, clean and after transient errors, over all prompts."""
    world = development()
    found: list[Opening] = []
    for i in range(number):
        rng = np.random.default_rng([DEVELOPMENT_SEED, i])
        name = sorted(prompts)[i % len(prompts)]
        task = world.tasks[int(rng.integers(len(world.tasks)))]
        fault = ScheduledFault(FaultKind.et, sites(task, FaultKind.et)[0], FAULT_CODE, FAULT_MESSAGE)
        messages = Demonstrator(world, task, fault if i % 2 else None, TABLES[shape.arch][name], rng).play()
        ends = [j for j, message in enumerate(messages) if message.assistant]
        seen: tuple[Message, ...] = messages[: ends[int(rng.integers(len(ends)))]]
        prefix = [SYSTEM, *vocabulary.encode(prompts[name]).ids, END]
        body = [*encode_body(vocabulary, seen, -1).ids, ASSISTANT]
        ids = greedy(weights, shape, prefix, body, 80)
        found.append(Opening(name, tuple(m.text for m in seen), ids, vocabulary.decode(ids)))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python tools/reference/verify.py", description=__doc__)
    parser.add_argument("--arch", choices=("llama", "qwen2"), required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, default=Path("prompts"))
    parser.add_argument("--number", type=int, default=20)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    vocabulary = Vocabulary.load(given.tokenizer)
    shape = Shape(given.arch, vocabulary.size)
    # What llama.cpp computes with: matrices rounded to float16.
    weights = {
        name: tensor.half().float() if tensor.dim() == 2 else tensor
        for name, tensor in torch.load(given.weights, weights_only=True)["weights"].items()
    }
    with torch.no_grad():
        found = openings(weights, shape, vocabulary, read_prompts(given.prompts), given.number)
    lines = [json.dumps(one.__dict__, ensure_ascii=True) for one in found]
    given.out.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
