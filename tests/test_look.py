"""`qfr look`: episodes that another file reads as its own are its own when it plays them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qfr.audit.looking import Place, State, look
from qfr.audit.replay import Finished, finished_run
from qfr.cell import Key, key_of
from qfr.cli import main
from qfr.commands.look import show
from qfr.engine.files.resolve import resolve
from qfr.engine.worker import FollowingWorker
from qfr.errors import EngineError
from qfr.front.models import compose_cell
from qfr.play import job
from qfr.records import Episode
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store

SMALL = ("suite=orders20_ref", "suite.families={base: 1, shipping: 2}", "walk=[et]", "engine.workers=1",
         "engine.n_threads=1", "engine.n_threads_batch=1")  # fmt: skip


def follower(finished: Finished) -> FollowingWorker:
    config, facts = finished.config, finished.cell.facts
    model = resolve(config.model, config.quant, Path(config.tracking.root) / "models")
    return FollowingWorker(model, config.engine, facts.n_ctx)


def qwen(finished: Finished) -> FollowingWorker:
    other = compose_cell("model=ref_qwen", "quant=f16", *SMALL)
    model = resolve(other.model, other.quant, Path(finished.config.tracking.root) / "models")
    return FollowingWorker(model, other.engine, finished.cell.facts.n_ctx)


def tokens(one: Finished) -> dict[Key, list[tuple[int, ...]]]:
    def written(episode: Episode) -> list[tuple[int, ...]]:
        return [turn.generation.token_ids for turn in episode.turns]

    return {key_of(episode): written(episode) for episode in (*one.clean, *one.episodes)}


def test_what_a_look_calls_the_same_is_the_same_when_it_is_played(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    for preset in ("f16", "q3_k_m"):
        job.run_job(
            compose_cell("model=ref_llama", f"quant={preset}", *SMALL, f'tracking.root="{store.root}"')
        )
    job._SHELF.clear()
    cells = {one.facts.quant: one for one in read_cells(store).cells if one.facts.fault == "et"}
    wide, narrow = (finished_run(store, cells[preset]) for preset in ("F16", "Q3_K_M"))
    reference, candidate, stranger = follower(wide), follower(narrow), qwen(wide)
    try:
        seen = look(wide, candidate, reference)
        own = look(wide, reference, reference)
        with pytest.raises(EngineError, match="spelled by other tokens"):
            look(wide, stranger)
    finally:
        stranger.close()
        reference.close()
        candidate.close()
    mine, theirs = tokens(wide), tokens(narrow)
    assert {one.key for one in seen.episodes} == set(mine)
    assert 0 < len(seen.same) < len(mine)
    assert all(mine[key] == theirs[key] for key in seen.same)
    certain = [one for one in seen.episodes if one.state is State.flipped]
    assert certain
    for one in certain:
        assert one.turn is not None
        assert mine[one.key][: one.turn] == theirs.get(one.key, mine[one.key])[: one.turn]
        assert mine[one.key] != theirs.get(one.key)
    assert seen.direction.low <= seen.direction.high
    volume = {one.place: one for one in seen.volume}
    assert set(volume) == set(Place)
    assert all(one.kl is not None and one.kl > 0 for one in seen.volume)

    assert not any(one.flips for one in own.volume)
    assert all(one.kl == pytest.approx(0.0, abs=1e-9) for one in own.volume)
    assert {one.state for one in own.episodes} <= {State.same, State.close}

    capsys.readouterr()
    command = ["look", "q3_k_m", "--reference", "f16", "--root", str(store.root)]
    assert main([*command, "--without-kl", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["same"] == len(seen.same)
    assert told["volume"][0]["kl"] is None
    show("f16", "q3_k_m", seen)
    assert "Volume, not direction" in capsys.readouterr().out
    assert main(["look", "q3_k_m", "--reference", "q6_k", "--root", str(store.root)]) == 2
    assert main(["look", "no_preset", "--reference", "f16", "--root", str(store.root)]) == 2
    assert main(["look", "/none/x.gguf", "--reference", "f16", "--root", str(store.root)]) == 2
    assert "error:" in capsys.readouterr().err
