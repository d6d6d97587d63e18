"""A cheap look at files before they are played: the reference's own episodes, read by each of them.

  qfr look q4_k_m q3_k_m --reference q8_0              presets of the model that the reference's cells played
  qfr look /models/other-Q4_K_M.gguf --reference f16   a file of the same model

The reference's finished episodes (clean and with faults) are read turn by turn. Decoding is greedy: where a
file chooses every token that the reference wrote, the episode is its own as well and need not be played.
Printed are the share of such episodes, the bounds that they set to the file's result (direction), and, apart
from that, how far the distributions are from one another at the tokens that decide (volume): the tool's name,
the values of arguments, the tool after a fault. A large divergence is no loss, and a small one no proof.

Exit code 0; 2 for an error of the user.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from qfr.audit.looking import Seen, State, look
from qfr.audit.replay import Finished, finished_run
from qfr.commands.common import add_store
from qfr.commands.decisions.sides import add_axes, read, require_levels, side
from qfr.config import CellConfig, EngineKind, QuantConfig
from qfr.engine.files.gguf import inspect
from qfr.engine.files.resolve import resolve
from qfr.engine.sampling import Sampling
from qfr.engine.worker import FollowingWorker
from qfr.errors import ConfigError
from qfr.grid.show import console
from qfr.records import FaultKind
from qfr.scoring import SCORER_VERSION


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    add_axes(parser)
    # The scores of a cell are derived anew.
    parser.set_defaults(policy_version=str(SCORER_VERSION))
    parser.add_argument("files", nargs="+", metavar="PRESET|FILE", help="what looks at the episodes")
    parser.add_argument("--reference", required=True, help="the preset whose episodes are read: q8_0, f16, …")
    parser.add_argument(
        "--without-kl", action="store_true", help="do not read them with the reference too: half the time"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read the reference's cells with each file."""
    store, reading = read(arguments)
    require_levels(reading, arguments)
    cells = side(store, reading, arguments.reference, arguments).cells
    faulted = [one for one in cells if one.facts.fault != FaultKind.none and one.clean is not None]
    if not faulted:
        raise ConfigError(
            f"no finished fault cell of {arguments.reference}",
            where=store.shown,
            hint="run one first, or loosen --model, --prompt, --fault and --suite",
        )
    told = []
    for cell in faulted:
        finished = finished_run(store, cell)
        _require_greedy(finished)
        reference = None if arguments.without_kl else _open(finished, finished.config)
        try:
            for word in arguments.files:
                candidate = _open(finished, _with(finished.config, word))
                try:
                    seen = look(finished, candidate, reference)
                finally:
                    candidate.close()
                told.append((cell.facts.name, word, seen))
                if not arguments.json:
                    show(cell.facts.name, word, seen)
        finally:
            if reference is not None:
                reference.close()
    if arguments.json:
        print(json.dumps([_plain(*one) for one in told], indent=2, sort_keys=True))
    return 0


def _require_greedy(finished: Finished) -> None:
    engine = finished.config.engine
    drawn = Sampling.of(engine, "") is not None
    if engine.kind is not EngineKind.llama_cpp or engine.streams > 1 or drawn:
        raise ConfigError(
            "its turns were not written by one stream of llama.cpp in process, greedily",
            where=finished.cell.facts.name,
            hint="a look needs such a cell (engine=llama_cpp, one stream, no engine.temperature)",
        )


def _with(config: CellConfig, word: str) -> CellConfig:
    """The cell with another file: one of its model at a preset, or one that is named."""
    path = Path(word).expanduser()
    if not path.exists() and path.suffix != ".gguf":
        return dataclasses.replace(config, quant=QuantConfig(word.upper(), None))
    model = dataclasses.replace(config.model, path=str(path.absolute()))
    return dataclasses.replace(config, model=model, quant=QuantConfig(inspect(path).file_type, None))


def _open(finished: Finished, config: CellConfig) -> FollowingWorker:
    model = resolve(config.model, config.quant, Path(config.tracking.root) / "models")
    return FollowingWorker(model, config.engine, finished.cell.facts.n_ctx)


def show(name: str, word: str, seen: Seen) -> None:
    """Print a look."""
    out = console()
    count, same = len(seen.episodes), len(seen.same)
    close = sum(one.state is State.close for one in seen.episodes)
    low, high = (100 * one for one in (seen.direction.low, seen.direction.high))
    out.print(f"\n{word} reads {name}", style="bold", markup=False)
    for line in (
        f"{same} of {count} episodes are the same ({same / count:.0%}); {count - same - close} flip, "
        f"{close} are too close to call (a lead below {seen.noise:.2g})",
        f"direction: {low:+.1f} to {high:+.1f} points of the full pipeline, whatever the others come to",
        f"{seen.tokens:,} tokens in {seen.seconds:.1f} s",
    ):
        out.print(line, markup=False, soft_wrap=True)
    table = Table("tokens that decide", title="Volume, not direction", title_justify="left")
    for column in ("tokens", "flips", "mean KL", "99 % KL", "5 % lead"):
        table.add_column(column, justify="right")
    for one in seen.volume:
        table.add_row(
            one.place, f"{one.tokens:,}", f"{one.flips} ({one.flips / one.tokens:.1%})",
            _number(one.kl), _number(one.kl_99), f"{one.lead:.2f}",
        )  # fmt: skip
    out.print(table)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _plain(name: str, word: str, seen: Seen) -> dict[str, object]:
    parted: Sequence[dict[str, object]] = [
        {"task": one.key[0], "site": one.key[1], "state": one.state, "turn": one.turn}
        for one in seen.episodes
        if one.state is not State.same
    ]
    return {
        "cell": name,
        "file": word,
        "episodes": len(seen.episodes),
        "same": len(seen.same),
        "parted": parted,
        "noise": seen.noise,
        "direction": dataclasses.asdict(seen.direction),
        "volume": [dataclasses.asdict(one) for one in seen.volume],
        "seconds": seen.seconds,
        "tokens": seen.tokens,
    }
