"""What an agent does on a suite, prompt by prompt: ``python tools/reference/quality.py FILE.gguf ...``.

One line per file and prompt: certified tasks by family, certified under the strict policy, recovery from
explicit transient faults, expressions, turns that are not strict, invented tools, displaced records asked
again, permanent faults reported. With ``--held-out`` also the clause combinations that training never saw,
with their retry clause and without. The model cards' tables are made by it.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from qfr.cell import Track, walk
from qfr.config import EngineConfig, EngineKind, ExecutorKind, Gate, Noise, ServerConfig
from qfr.engine.base import Engine
from qfr.engine.files.gguf import open_model
from qfr.engine.llama.engine import LlamaEngine
from qfr.episode import Episodes, Rules
from qfr.records import Channel, Episode, FaultKind, Policy, Score
from qfr.scoring import score
from qfr.world.base import World
from qfr.world.orders import Ids, build
from tools.reference.clauses import HELD_OUT, compose, drop_retry
from tools.reference.corpus import FAULT_CODE, FAULT_MESSAGE, read_prompts

DEVELOPMENT_SEED = 4711
FAULTS = (FaultKind.et, FaultKind.it, FaultKind.ep)
RULES = Rules(ExecutorKind.tolerant, 12, 10, 160, FAULT_CODE, FAULT_MESSAGE, 0)
HELD_OUT_SEED = 2026


@dataclass(frozen=True)
class Quality:
    """Counts of one file under one prompt. Scores are tolerant where nothing else is said."""

    prompt: str
    tasks: int
    certified: dict[str, int]
    # By family.
    certified_strict: int
    clean_expressions: int
    # Certified tasks whose answer is an expression.
    invented_tools: int
    # Clean episodes with a tool name that does not exist.
    loose_turns: int
    # Clean episodes with a turn that is not strict.
    et: tuple[int, int]
    # Recovered, injected.
    et_mean: float | None
    # Mean over tasks of the recovered share; None without a certified task.
    et_expressions: int
    # Recovered episodes whose answer is an expression.
    et_loose: int
    # ET episodes with a turn that is not strict.
    it: tuple[int, int]
    # Right in spite of a displaced record, injected.
    it_noticed: int
    # IT episodes in which the displaced record was asked again.
    ep: tuple[int, int]
    # Reported after at least two calls of the dead tool, injected.

    @property
    def clean(self) -> int:
        """Certified tasks of all families."""
        return sum(self.certified.values())


def development() -> World:
    """The suite on which agents are tuned and dials are chosen; its ids occur nowhere else."""
    return build({"base": 20, "shipping": 20}, DEVELOPMENT_SEED, "round", Ids.development)


def evaluation() -> World:
    """The tasks of the suite `orders20_ref`."""
    return build({"base": 10, "shipping": 10}, 2026, "round")


def measure(
    engine: Engine,
    world: World,
    name: str,
    text: str,
    kinds: Sequence[FaultKind],
    rules: Rules = RULES,
) -> Quality:
    """Play a walk and count.

    Parameters
    ----------
    engine : Engine
    world : World
    name, text : str
        The prompt.
    kinds : sequence of FaultKind
        Kinds of fault to inject at every site of the certified tasks.
    """
    played: dict[FaultKind, list[tuple[Episode, Score]]] = defaultdict(list)

    def record(track: Track, episode: Episode, _seconds: float) -> None:
        played[track.kind].append((episode, score(episode, Policy.tolerant)))

    faults = tuple(Track(kind, kind, Gate.certified, {}) for kind in kinds)
    walk(Episodes(engine, world, text, rules), Track("clean", FaultKind.none, Gate.none, {}), faults, record)
    clean, et = played[FaultKind.none], played[FaultKind.et]
    it, ep = played[FaultKind.it], played[FaultKind.ep]
    passed = [episode for episode, scored in clean if scored.success]
    shares: dict[str, list[bool]] = defaultdict(list)
    for episode, scored in et:
        shares[episode.task].append(scored.success)
    return Quality(
        prompt=name,
        tasks=len(clean),
        certified={
            family: sum(one.family == family for one in passed)
            for family in sorted({one.family for one, _ in clean})
        },
        certified_strict=sum(score(one, Policy.strict).success for one, _ in clean),
        clean_expressions=sum(scored.success and scored.expression for _, scored in clean),
        invented_tools=sum(
            any(turn.observation.channel is Channel.tool_name for turn in one.turns) for one, _ in clean
        ),
        loose_turns=sum(not scored.strict_throughout for _, scored in clean),
        et=_hits(et),
        et_mean=float(np.mean([np.mean(share) for share in shares.values()])) if shares else None,
        et_expressions=sum(scored.success and scored.expression for _, scored in et),
        et_loose=sum(not scored.strict_throughout for _, scored in et),
        it=_hits(it),
        it_noticed=sum(scored.requeried for _, scored in it),
        ep=_hits(ep),
    )


def _hits(played: Sequence[tuple[Episode, Score]]) -> tuple[int, int]:
    return sum(scored.success for _, scored in played), len(played)


def held_out_prompts() -> dict[str, str]:
    """A wording of each combination held out of training, and the same text without its retry rule."""
    found: dict[str, str] = {}
    for i, stance in enumerate(HELD_OUT):
        text = compose(stance, np.random.default_rng([HELD_OUT_SEED, i]))
        found[f"H{i + 1}"] = text
        found[f"H{i + 1} without"] = drop_retry(text)
    return found


def open_engine(path: Path, cache: Path) -> LlamaEngine:
    """llama.cpp as the agents are measured with it: one thread of the processor."""
    server = ServerConfig(None, None, None, "NONE", 1, 0, 30.0, "max_tokens", "{}")
    config = EngineConfig(
        kind=EngineKind.llama_cpp,
        n_ctx=None,
        n_batch=512,
        n_ubatch=512,
        n_threads=1,
        n_threads_batch=1,
        n_gpu_layers=0,
        main_gpu=0,
        split_mode="none",
        flash_attn=False,
        type_k="f16",
        type_v="f16",
        swa_full=True,
        streams=1,
        workers=1,
        seed=1,
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        noise=Noise.shared,
        skill={},
        server=server,
        gpus=[],
    )
    return LlamaEngine(open_model(path, cache), config, 4096)


def show(quality: Quality) -> str:
    """One line of text."""
    families = " + ".join(f"{count} {family}" for family, count in quality.certified.items())
    text = (
        f"{quality.prompt}: certified {quality.clean} of {quality.tasks} ({families}), strict"
        f" {quality.certified_strict}, expressions {quality.clean_expressions},"
        f" invented tools in {quality.invented_tools}, loose turns in {quality.loose_turns}"
    )
    if quality.et[1]:
        text += (
            f"; ET {_share(quality.et)}, expressions {quality.et_expressions}, loose {quality.et_loose};"
            f" IT {_share(quality.it)}, noticed {quality.it_noticed}; EP {_share(quality.ep)}"
        )
    return text


def _share(pair: tuple[int, int]) -> str:
    return f"{pair[0]}/{pair[1]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python tools/reference/quality.py", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--suite", choices=("orders20_ref", "development"), default="orders20_ref")
    parser.add_argument("--prompts", type=Path, default=Path("prompts"), help="folder of P0.md ... P4.md")
    parser.add_argument("--held-out", action="store_true", help="also the held-out clause combinations (ET)")
    parser.add_argument("--json", type=Path, default=None, help="write the counts here")
    given = parser.parse_args(arguments)
    world = evaluation() if given.suite == "orders20_ref" else development()
    asked: dict[str, Mapping[str, str]] = {"own": read_prompts(given.prompts)}
    if given.held_out:
        asked["held out"] = held_out_prompts()
    found: dict[str, list[Quality]] = {}
    with TemporaryDirectory() as cache:
        for path in given.files:
            print(path.name, flush=True)
            engine = open_engine(path, Path(cache))
            for which, prompts in asked.items():
                kinds = FAULTS if which == "own" else (FaultKind.et,)
                for name in prompts:
                    quality = measure(engine, world, name, prompts[name], kinds)
                    found.setdefault(path.name, []).append(quality)
                    print("  " + show(quality), flush=True)
            engine.close()
    if given.json is not None:
        rows = {name: [asdict(one) for one in qualities] for name, qualities in found.items()}
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
