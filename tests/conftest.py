"""Fixtures of several rooms. Nothing heavy is imported before a test asks for it."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

# Shared machines pause at any moment: no test asserts a time.
settings.register_profile("qfr", deadline=None)
settings.load_profile("qfr")
# A background job of a plain shell ignores Ctrl-C, and so would all processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from qfr.engine.files.gguf import ModelFile
    from qfr.engine.llama.engine import LlamaEngine
    from qfr.tracking.store import Store
    from tests.mlflow_server import MlflowServer


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database. Migrating one takes seconds, copying it milliseconds."""
    from qfr.tracking.environment import settle

    settle()
    from qfr.tracking import database

    path = tmp_path_factory.mktemp("template") / "mlflow.db"
    database.prepare(database.uri_of(path), path.parent / "artifacts")
    return path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Iterator[MlflowServer]:
    """A real `mlflow server`; a test that kills it starts it again."""
    from tests.mlflow_server import running_server

    with running_server(tmp_path_factory.mktemp("server"), migrated_database) as running:
        yield running


@pytest.fixture
def make_store(migrated_database: Path, tmp_path: Path) -> Callable[..., Store]:
    """`make_store(name="mlruns", experiment="qfr")`: a real MLflow store under the test's own folder."""
    from qfr.tracking.store import open_store

    def make(name: str = "mlruns", experiment: str = "qfr") -> Store:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        if not (root / "mlflow.db").exists():
            shutil.copy(migrated_database, root / "mlflow.db")
        return open_store(None, root, experiment)

    return make


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    """A fresh MLflow store."""
    return make_store()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModelFile]:
    """`files("chatml")`: a tiny model of `tiny_models`, or SmolLM2 by its name."""
    from qfr.engine.files.gguf import open_model
    from tests.engine_builders import smollm2
    from tests.tiny_models import MODELS, write_model

    folder = tmp_path_factory.mktemp("models")
    made: dict[str, ModelFile] = {}

    def get(name: str) -> ModelFile:
        if name not in made:
            path = smollm2() if name == "smollm2" else write_model(folder / f"{name}.gguf", MODELS[name])
            made[name] = open_model(path, folder)
        return made[name]

    return get


@pytest.fixture
def load(files: Callable[[str], ModelFile]) -> Iterator[Callable[..., LlamaEngine]]:
    """`load("chatml", n_ctx=1024, flash_attn=True)`: an engine, closed after the test."""
    from qfr.engine.llama.engine import LlamaEngine
    from tests.engine_builders import engine_config

    opened: list[LlamaEngine] = []

    def get(name: str | ModelFile, n_ctx: int = 1024, **changes: Any) -> LlamaEngine:
        file = files(name) if isinstance(name, str) else name
        opened.append(LlamaEngine(file, engine_config(**changes), n_ctx))
        return opened[-1]

    yield get
    for engine in opened:
        engine.close()


def pytest_unconfigure() -> None:
    """Close what llama-cpp-python opens as it is imported and never closes: warnings are errors here."""
    utils = sys.modules.get("llama_cpp._utils")
    if utils is not None:
        utils.outnull_file.close()
        utils.errnull_file.close()
