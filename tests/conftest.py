"""Fixtures of several rooms. Nothing heavy is imported before a test asks for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

# Shared machines pause at any moment: no test asserts a time.
settings.register_profile("qfr", deadline=None)
settings.load_profile("qfr")

if TYPE_CHECKING:
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
