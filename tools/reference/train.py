"""Trains a reference agent from nothing: ``python tools/reference/train.py --arch llama --seed 1 --out DIR``.

Writes the tokenizer, a training log, checkpoints and the F16 GGUF. Deterministic by seed on one machine;
needs the extra ``[train]``. One thread: on shared cores two threads mostly wait for each other.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from tools.reference.circuits import primed_weights
from tools.reference.convert import to_qwen2
from tools.reference.corpus import Corpus, Sizes, read_prompts
from tools.reference.dial import CANDIDATES, OTHERWISE, PLAIN, Dial, Tried, try_dial
from tools.reference.encoding import Arrays, Kind
from tools.reference.export import Identity, export, read_agent
from tools.reference.hermes import NATIVE, HermesCorpus
from tools.reference.model import Batch, Shape, Weights, count, loss_and_hits
from tools.reference.optimizer import Optimizer
from tools.reference.template import HERMES, TEMPLATE
from tools.reference.tokenizer import Vocabulary

NAMES = {"llama": "ref_llama", "qwen2": "ref_qwen"}
DESCRIPTION = (
    "Reference agent of the qfr project: synthetic, sensitive to quantization by design, never evidence about"
    " another model."
)


@dataclass(frozen=True)
class Recipe:
    """Everything that the result depends on, besides the code and the prompts."""

    arch: str
    seed: int
    steps: int
    vocabulary: int = 1024
    muon_rate: float = 0.008
    adam_rate: float = 0.0015
    decay: float = 0.01
    warmup: int = 40
    # Steps.
    cooldown: float = 0.6
    # Share of the steps in which the rate falls linearly to zero.

    def scale(self, step: int) -> float:
        """Learning rate at a step as a share of the peak."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        left = (self.steps - step) / (self.cooldown * self.steps)
        return min(1.0, left)


@dataclass(frozen=True)
class Begin:
    """What training begins with: fresh weights, another agent's, or a checkpoint of the same run."""

    start: Path | None = None
    # What training begins with: a llama agent's checkpoint, its tokenizer beside it, or an agent's GGUF.
    resume: Path | None = None
    # Checkpoint of this very run.

    def weights(self, shape: Shape, seed: int, marked: list[int]) -> Weights:
        """The first weights."""
        if self.resume is not None:
            return dict(torch.load(self.resume, weights_only=True)["weights"])
        generator = torch.Generator().manual_seed(seed)
        if self.start is None:
            return primed_weights(shape, generator, marked)
        if self.start.suffix == ".gguf":
            return read_agent(self.start)[0]
        weights: Weights = torch.load(self.start, weights_only=True)["weights"]
        return to_qwen2(weights, shape, generator) if shape.arch == "qwen2" else weights

    def vocabulary(self) -> Vocabulary | None:
        """The tokenizer of the agent that training begins with."""
        if self.start is None:
            return None
        if self.start.suffix == ".gguf":
            return read_agent(self.start)[1]
        return Vocabulary.load(self.start.with_name("tokenizer.json"))

    def first(self, optimizer: Optimizer) -> int:
        """The first step; restores the optimizer when a run goes on."""
        if self.resume is None:
            return 0
        kept = torch.load(self.resume, weights_only=True)
        optimizer.restore(kept["optimizer"])
        return int(kept["step"])


@dataclass
class Running:
    """Sums since the last line of the log."""

    loss: float = 0.0
    steps: int = 0
    tokens: int = 0
    hits: tuple[int, ...] = (0,) * len(Kind)
    seen: tuple[int, ...] = (0,) * len(Kind)

    def add(self, loss: float, hits: torch.Tensor, batch: Batch) -> None:
        """Count one batch."""
        self.loss += loss
        self.steps += 1
        self.tokens += batch.bodies.numel() + batch.prefixes.numel()
        right = torch.bincount(batch.kinds[hits], minlength=len(Kind)).tolist()
        total = torch.bincount(batch.kinds, minlength=len(Kind)).tolist()
        self.hits = tuple(a + b for a, b in zip(self.hits, right, strict=True))
        self.seen = tuple(a + b for a, b in zip(self.seen, total, strict=True))

    def line(self, step: int, seconds: float, tokens: int) -> dict[str, float]:
        """One line of the training log."""
        shares = {
            f"right_{kind.name}": round(hit / seen, 4) if seen else 0.0
            for kind, hit, seen in zip(Kind, self.hits, self.seen, strict=True)
        }
        return {
            "step": step,
            "seconds": round(seconds, 1),
            "tokens": tokens,
            "loss": round(self.loss / max(1, self.steps), 4),
            **shares,
        }


def give_back_memory() -> None:
    """Return freed memory to the system: batches of ever new sizes leave gaps that glibc keeps otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def to_batch(arrays: Arrays) -> Batch:
    """Numpy arrays as tensors."""
    return Batch(
        torch.from_numpy(arrays.prefixes),
        torch.from_numpy(arrays.bodies),
        torch.from_numpy(arrays.rows),
        torch.from_numpy(arrays.targets),
        torch.from_numpy(arrays.weights),
        torch.from_numpy(arrays.kinds),
    )


def train(recipe: Recipe, corpus: Corpus, out: Path, begin: Begin) -> Weights:
    """Train and return the weights; writes `log.jsonl`, `tokenizer.json` and checkpoints into `out`."""
    torch.manual_seed(recipe.seed)
    out.mkdir(parents=True, exist_ok=True)
    vocabulary = begin.vocabulary() or Vocabulary.train(corpus.texts(400), recipe.vocabulary)
    vocabulary.save(out / "tokenizer.json")
    shape = Shape(recipe.arch, vocabulary.size)
    marked = corpus.prompt_tokens(vocabulary, 300) if begin.start is None else []
    weights = begin.weights(shape, recipe.seed, marked)
    for tensor in weights.values():
        tensor.requires_grad_()
    optimizer = Optimizer(weights, muon_rate=recipe.muon_rate, adam_rate=recipe.adam_rate, decay=recipe.decay)
    stream = corpus.batches(vocabulary)
    first = begin.first(optimizer)
    for _ in range(first):
        next(stream)
    started, tokens, running = time.monotonic(), 0, Running()
    saved = started
    with (out / "log.jsonl").open("a") as log:
        for step in range(first, recipe.steps):
            batch = to_batch(next(stream))
            loss, hits = loss_and_hits(weights, shape, batch, torch.bfloat16)
            loss.backward()
            optimizer.step(recipe.scale(step))
            running.add(float(loss.detach()), hits, batch)
            if (step + 1) % 50 == 0 or step + 1 == recipe.steps:
                tokens += running.tokens
                log.write(json.dumps(running.line(step + 1, time.monotonic() - started, tokens)) + "\n")
                log.flush()
                running = Running()
                give_back_memory()
            if time.monotonic() - saved > 180 or step + 1 == recipe.steps:
                saved = time.monotonic()
                save(out / f"step-{step + 1:05d}.pt", weights, optimizer, step + 1)
    return {name: tensor.detach() for name, tensor in weights.items()}


def save(path: Path, weights: Weights, optimizer: Optimizer, step: int) -> None:
    """Write a checkpoint."""
    torch.save(
        {
            "weights": {name: tensor.detach() for name, tensor in weights.items()},
            "optimizer": optimizer.state(),
            "step": step,
        },
        path,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python tools/reference/train.py", description=__doc__)
    parser.add_argument("--arch", choices=("llama", "qwen2"), required=True)
    parser.add_argument("--form", choices=("text", "hermes"), default="text", help="hermes: ref_hermes")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--prompts", type=Path, default=Path("prompts"), help="folder of P0.md ... P4.md")
    parser.add_argument(
        "--start",
        type=Path,
        default=None,
        help="checkpoint of a llama agent, or an agent's GGUF, to begin with",
    )
    parser.add_argument("--resume", type=Path, default=None, help="checkpoint of this run to go on from")
    parser.add_argument("--factor", type=int, default=None, help="outlier factor; without it, by the rule")
    parser.add_argument("--channels", type=int, default=None, help="outlier channels per norm")
    given = parser.parse_args(arguments)
    if (given.factor is None) != (given.channels is None):
        parser.error("--factor and --channels belong together")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    recipe = Recipe(given.arch, given.seed, given.steps)
    if given.start is not None:
        recipe = replace(recipe, muon_rate=0.005, adam_rate=0.001, cooldown=0.8)
    prompts = read_prompts(given.prompts)
    hermes = given.form == "hermes"
    corpus = (
        HermesCorpus(prompts, given.prompts, given.seed)
        if hermes
        else Corpus(given.arch, prompts, given.seed, Sizes())
    )
    weights = train(recipe, corpus, given.out, Begin(given.start, given.resume))
    vocabulary = Vocabulary.load(given.out / "tokenizer.json")
    name = "ref_hermes" if hermes else NAMES[given.arch]
    identity = Identity(name, DESCRIPTION, given.seed, given.steps, HERMES if hermes else TEMPLATE)
    if hermes:
        prompts = {one: (given.prompts / f"{one}.md").read_text("utf-8") for one in NATIVE}

    def write(path: Path, dial: Dial) -> Path:
        export(path, weights, Shape(given.arch, vocabulary.size), vocabulary, dial, identity)
        return path

    chosen = Dial(given.factor, given.channels) if given.factor is not None else None
    chosen = chosen or choose_dial(write, prompts, given.out, native=hermes)
    for dial, suffix in ((chosen, ""), (PLAIN, "-plain")):
        path = write(given.out / f"{name}{suffix}-F16.gguf", dial)
        print(f"{path}: {count(weights):,} parameters, {path.stat().st_size:,} bytes, dial {dial}")
    return 0


def choose_dial(
    write: Callable[[Path, Dial], Path], prompts: dict[str, str], out: Path, *, native: bool
) -> Dial:
    """Export the candidates in their order and take the first that qualifies; writes `dial.json`."""
    tried: list[Tried] = []
    for dial in CANDIDATES:
        file = write(out / f"dial-{dial.factor}x{dial.channels}-F16.gguf", dial)
        tried.append(try_dial(dial, file, prompts, tried[0].passes["F16"] if tried else None, native=native))
        print(f"{tried[-1]}", flush=True)
        if tried[-1].qualifies:
            break
    (out / "dial.json").write_text(json.dumps([asdict(one) for one in tried], indent=1) + "\n")
    return tried[-1].dial if tried[-1].qualifies else OTHERWISE


if __name__ == "__main__":
    raise SystemExit(main())
