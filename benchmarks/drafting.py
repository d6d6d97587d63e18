"""What drafting would save: turns proposed from a clean episode or a sibling preset, verified in one batch.

``python -m benchmarks.drafting [--model ref_llama] [--quant q4_k_m] [--sibling q8_0] [--rounds 3]``. A walk
(clean pass and transient faults) is played in three ways, interleaved: token by token as qfr does it; with
the turns of the task's clean episode proposed after a fault (`clean`); with the turns that another preset
wrote in the same episode proposed everywhere (`sibling`). Proposed tokens are evaluated in one batch, the
longest prefix that equals the argmax choices is kept, the rest taken back; after a token that was another
one the proposal goes on as soon as the model is back in step with it. Verification batches move the last bits
of the logits, so episodes whose text or score differs from `none` are counted.

The code stands here and not in the engine: see README.md for what it won.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.composing import compose_cell, model_file
from qfr.audit.replay import compare
from qfr.cell import Key, certified
from qfr.config import CellConfig, EngineConfig, Gate
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama import model as llama_model
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.greedy import Writing
from qfr.engine.llama.path import Asked, Segment
from qfr.engine.llama.sequences import Row, Sequences
from qfr.engine.llama.settings import context_parameters
from qfr.episode import Piece, Script, Scripts, recorded
from qfr.errors import EngineError
from qfr.grid.checks import build_world
from qfr.places import prompt_path
from qfr.play.engine_cache import context_need, rules_of
from qfr.prompts import load_prompt
from qfr.records import Episode, FaultKind
from qfr.world.base import sites

# Tokens of one verification at most, and verifications of one turn.
_MOST_ROWS, _MOST_TRIES = 64, 4

Tokens = tuple[int, ...]
Walk = dict[Key, Episode]


def _wide(config: EngineConfig, n_ctx: int) -> object:
    """A context that gives the logits of every token of a verification."""
    parameters = context_parameters(config, n_ctx)
    parameters.n_outputs_max = _MOST_ROWS
    return parameters


class DraftingEngine(LlamaEngine):
    """Writes a turn from a proposal as far as the model agrees with it."""

    def __init__(self, model: ModelFile, config: EngineConfig, n_ctx: int) -> None:
        plain = llama_model.__dict__["context_parameters"]
        llama_model.__dict__["context_parameters"] = _wide
        super().__init__(model, config, n_ctx)
        llama_model.__dict__["context_parameters"] = plain
        self._rows = Sequences(self._model, config.n_batch)
        self.proposal: Tokens = ()
        self.proposed = self.accepted = 0

    def _write(self, asked: Asked) -> Writing:
        if not self.proposal:
            return super()._write(asked)
        segment = self._path[self._cursor - 1]
        if not isinstance(segment, Segment):
            raise EngineError("a turn has to follow a message")
        start = self._position(self._cursor)
        writing = Writing(asked.max_tokens, self._model.n_ctx - start, None, self._model.is_end, "")
        writing.take(segment.logits)
        tries = 0
        while writing.stop is None:
            count = len(writing.chosen)
            in_step = count <= len(self.proposal) and writing.chosen[-1] == self.proposal[count - 1]
            run = self.proposal[count:][: _MOST_ROWS - 1] if in_step and tries < _MOST_TRIES else ()
            if len(run) < 2:
                writing.take(self._evaluate(writing.chosen[-1:]))
                continue
            tries += 1
            self._verify(writing, run, start + count - 1)
        self._tally.chosen(len(writing.chosen))
        return writing

    def _verify(self, writing: Writing, run: Tokens, at: int) -> None:
        """Evaluate the last token and the proposed ones; keep what the model would have written."""
        # The last proposed token needs no evaluation: nothing is asked of what follows it.
        tokens = [writing.chosen[-1], *run[:-1]]
        began = time.perf_counter()
        logits = self._rows.step([Row(0, token, at + place) for place, token in enumerate(tokens)])
        self._tally.stepped(len(tokens), time.perf_counter() - began)
        self.proposed += len(run)
        for place, vector in enumerate(logits):
            token = writing.take(vector)
            self.accepted += token == run[place]
            if writing.stop is not None or token != run[place]:
                break
        if not self._model.rewind(at + place + 1):
            raise EngineError("the cache cannot be rewound")


@dataclass
class Played:
    """One walk."""

    episodes: Walk = field(default_factory=dict)
    seconds: float = 0.0
    # Processor time of the walk.
    proposed: int = 0
    accepted: int = 0


def of_clean(clean: Episode, told: str, said: Sequence[Tokens]) -> Tokens:
    """After an observation that the clean episode holds, the turn that followed it; else the same again."""
    for before, after in pairwise(clean.turns):
        if before.observation.text == told:
            return after.generation.token_ids
    return said[-1]


class Guide:
    """Proposes turns of one walk."""

    def __init__(self, source: str, sibling: Walk) -> None:
        self._source, self._sibling = source, sibling
        self.clean: Walk = {}

    def propose(self, key: Key, told: str, said: Sequence[Tokens]) -> Tokens:
        """The turn that follows a message (`told`) after these turns."""
        if self._source == "sibling":
            turns = self._sibling[key].turns if key in self._sibling else ()
            return turns[len(said)].generation.token_ids if len(said) < len(turns) else ()
        if self._source == "clean" and key[1] >= 0 and said:
            return of_clean(self.clean[key[0], -1], told, said)
        return ()


def play_walk(engine: DraftingEngine, scripts: Scripts, guide: Guide, *, gate: bool) -> Played:
    """Clean pass and transient faults, deepest site first; `gate`: on the certified tasks only."""
    out, began = Played(), time.process_time()
    engine.proposed = engine.accepted = 0
    for task in scripts.world.tasks:
        first = _play(engine, scripts, Piece(task, None), (task.id, -1), guide)
        out.episodes[task.id, -1] = guide.clean[task.id, -1] = first
        if certified(first) or not gate:
            for site in reversed(sites(task, FaultKind.et)):
                key = (task.id, site.index)
                out.episodes[key] = _play(engine, scripts, Piece(task, site), key, guide)
    out.seconds = time.process_time() - began
    out.proposed, out.accepted = engine.proposed, engine.accepted
    return out


def _play(engine: DraftingEngine, scripts: Scripts, piece: Piece, key: Key, guide: Guide) -> Episode:
    kind = FaultKind.none if piece.site is None else FaultKind.et
    script: Script = scripts.script("", kind, piece)
    message, limit = next(script), scripts.rules.max_tokens
    said: list[Tokens] = []
    while True:
        engine.proposal = guide.propose(key, message.text, said)
        if message.opening:
            generation = engine.begin(scripts.system, message.text, limit)
        else:
            generation = engine.reply(message.text, limit)
        said.append(generation.token_ids)
        try:
            message = script.send(generation)
        except StopIteration as end:
            return recorded(end)


def measure(cell: CellConfig, sibling: CellConfig, rounds: int) -> None:
    """Print one line per source."""
    world = build_world(cell.suite)
    prompt = load_prompt(prompt_path(cell.prompt.file), cell.prompt.sha256).text
    n_ctx, rules = context_need(cell, world, prompt), rules_of(cell)
    scripts, gate = Scripts(world, prompt, rules, lambda: n_ctx), cell.suite.gate is Gate.certified
    other = DraftingEngine(model_file(sibling), sibling.engine, n_ctx)
    written = play_walk(other, scripts, Guide("none", {}), gate=gate).episodes
    other.close()
    runs: dict[str, list[Played]] = {"none": [], "clean": [], "sibling": []}
    for _ in range(rounds):
        for source, played in runs.items():
            engine = DraftingEngine(model_file(cell), cell.engine, n_ctx)
            played.append(play_walk(engine, scripts, Guide(source, written), gate=gate))
            engine.close()
    plain = runs["none"]
    print(f"{cell.model.name} {cell.quant.preset} {cell.prompt.name}, sibling {sibling.quant.preset}, "
          f"{len(plain[0].episodes)} episodes, {cell.engine.n_threads} threads")  # fmt: skip
    for source, played in runs.items():
        ratios = sorted(a.seconds / b.seconds for a, b in zip(plain, played, strict=True))
        found = compare(list(plain[0].episodes.values()), list(played[0].episodes.values()))
        share = played[0].accepted / played[0].proposed if played[0].proposed else 0.0
        print(
            f"  {source:8} {statistics.median(one.seconds for one in played):7.2f} s CPU, "
            f"{statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
            f"{played[0].accepted} of {played[0].proposed} proposed tokens kept ({share:.0%}); "
            f"of {found.episodes} episodes {len(found.texts)} differ in text, {len(found.scores)} in score"
        )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="ref_llama")
    parser.add_argument("--quant", default="q4_k_m")
    parser.add_argument("--sibling", default="q8_0")
    parser.add_argument("--suite", default="orders20_ref")
    parser.add_argument("--prompt", default="P0")
    parser.add_argument("--gate", default="certified", choices=["certified", "none"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--root", default=str(Path("mlruns")), help="where derived files go")
    parser.add_argument("overrides", nargs="*", help="more settings: suite.step_budget=4 …")
    given = parser.parse_args()
    common = [
        f"model={given.model}", f"suite={given.suite}", f"suite.gate={given.gate}", f"prompt={given.prompt}",
        f"engine.n_threads={given.threads}", f"engine.n_threads_batch={given.threads}",
        f"tracking.root={given.root}", *given.overrides,
    ]  # fmt: skip
    cells = [compose_cell([*common, f"quant={quant}"]) for quant in (given.quant, given.sibling)]
    measure(cells[0], cells[1], given.rounds)


if __name__ == "__main__":
    main()
