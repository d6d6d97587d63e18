"""`qfr audit --streams`: cells are played with another number of streams, differences are counted."""

from __future__ import annotations

import pytest

from qfr.cli import main
from qfr.front.models import compose_cell
from qfr.play import job
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store


def play(store: Store, *overrides: str) -> None:
    job.run_job(compose_cell(*overrides, f'tracking.root="{store.root}"'))
    job._SHELF.clear()


def audit(store: Store, *words: str) -> int:
    return main(["audit", "--root", str(store.root), "--cells", "9", *words])


def test_a_reference_agent_with_four_streams(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """Run with one stream, count with four; run with four, audit them byte for byte."""
    common = ("model=ref_llama", "quant=f16", "suite=orders20_ref", "suite.families={base:2,shipping:1}")
    play(store, *common, "walk=[et]")
    assert audit(store, "--streams", "4") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Played with 4 streams" in shown
    assert "another score with 4 streams" in shown
    assert "0 another score" in shown
    play(store, *common, "walk=[et]", "engine.streams=4")
    cells = read_cells(store).cells
    assert sorted(cell.facts.streams for cell in cells) == [1, 1, 4, 4]
    assert {cell.facts.exactness for cell in cells} == {"forks are bit-equal to fresh evaluation"}
    assert len({cell.facts.cell_id for cell in cells}) == 4
    assert audit(store) == 0
    assert "The same: all 4 cells, byte for byte" in " ".join(capsys.readouterr().out.split())


def test_a_scripted_agent_does_not_depend_on_batches(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    play(store, "model=scripted", "quant=q4_k_m", "suite=orders6", "walk=[et,ep]")
    assert audit(store, "--streams", "3") == 0
    assert "0 have another text and 0 another score" in " ".join(capsys.readouterr().out.split())
