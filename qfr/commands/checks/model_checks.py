"""What `qfr doctor` does with one loaded model: are its forks exact, how fast is it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qfr.config import CellConfig, EngineKind
from qfr.engine.base import Exactness
from qfr.engine.files.resolve import resolve
from qfr.engine.worker import WorkerEngine
from qfr.errors import UserError
from qfr.front.models import compose_cell
from qfr.grid.checks import build_world, check_cell
from qfr.grid.design import design_of
from qfr.play.engine_cache import context_need
from qfr.play.exactness import assure, told
from qfr.play.speed import Speed, measure, remember


@dataclass(frozen=True)
class Checked:
    """What was found out about a model."""

    name: str
    # "smollm2 q4_1, 1 stream, 2 threads, cpu".
    exactness: Exactness | None
    # None = not asked for.
    speed: Speed | None
    notes: tuple[str, ...]
    # What its chat template does that a reader has to know.

    def lines(self) -> tuple[tuple[bool | None, str, str], ...]:
        """Good, bad or a mere fact; what; what was found."""
        out: list[tuple[bool | None, str, str]] = []
        found, speed = self.exactness, self.speed
        out += [(None, "chat template", note) for note in self.notes]
        if found is not None:
            compared = f" ({found.turns} turns compared in {found.seconds:.1f} s)" if found.turns else ""
            # No forks at all is a property of the model, other bits are a fault of the machinery.
            out.append((found.exact or (None if not found.turns else False), "forks", told(found) + compared))
        if speed is not None:
            rates = f"{speed.prefill:,.0f} tokens/s prefill, {speed.decode:,.0f} tokens/s decode"
            out.append((None, "speed", f"{rates} (measured for {speed.seconds:.0f} s; mode=plan uses it)"))
        return tuple((ok, f"{self.name}: {what}", told_) for ok, what, told_ in out)


def check_model(
    overrides: Sequence[str], root: Path, *, exactness: bool, speed: bool, seconds: float
) -> Checked:
    """Load the model that the overrides name and try it.

    Parameters
    ----------
    overrides : sequence of str
        As for a run: `model=… quant=… engine.n_threads=…`.
    root : Path
        Folder of the local store.

    Raises
    ------
    UserError
        No model is named, or the file cannot be had.
    MachineryError
        The engine broke.
    """
    if not any(one.startswith("model") for one in overrides):
        raise UserError("no model is named", hint="qfr doctor --exactness --speed model=smollm2 quant=q4_1")
    cell = compose_cell(*overrides)
    check_cell(cell)
    if cell.engine.kind is not EngineKind.llama_cpp:
        raise UserError(
            f"engine={cell.engine.kind} evaluates no tokens here",
            hint="engine=llama_cpp has forks and a speed",
        )
    model = resolve(cell.model, cell.quant, root / "models")
    world, prompt = build_world(cell.suite), design_of(cell).prompt
    engine = WorkerEngine(model, cell.engine, cell.engine.n_ctx or context_need(cell, world, prompt.text))
    try:
        found = None
        if exactness:
            found = assure(engine, cell.engine, root, lambda _line: None, anew=True)
        rates = None
        if speed:
            rates = measure(engine, cell.engine.streams, seconds)
            remember(root, cell, engine, rates)
        return Checked(_name(cell, engine.info.device), found, rates, engine.info.notes())
    finally:
        engine.close()


def _name(cell: CellConfig, device: str) -> str:
    streams, threads = cell.engine.streams, cell.engine.n_threads
    count = f"{streams} stream{'s' if streams > 1 else ''}, {threads} thread{'s' if threads > 1 else ''}"
    return f"{cell.model.name} {cell.quant.preset.lower()}, {count}, {device}"
