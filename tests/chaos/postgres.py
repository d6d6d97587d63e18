"""PostgreSQL and an MLflow server as the shared store of two workers; both are killed in the middle.

    python -m tests.chaos.postgres [--tasks 20] [--folder DIR]

Starts PostgreSQL (a system package) and `mlflow server` on loopback and plays a grid of the reference agent
with `hydra/launcher=joblib` three times: the MLflow server is killed and comes back; the database is killed
and comes back; the MLflow server is killed and stays away until the command is given again. The logs have to
be, byte for byte, those of a run that logs to SQLite. A line for each fact; exit code 0: all held.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.services import free_port, mlflow_server, need, postgres, until
from tests.chaos.sweeps import Facts, Place, checked, grid_of, packages, played_plain

JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
_AWAY, _BACK = "MLflow is away", "MLflow is back"
_FEW = 20
# Episodes in the journals after which something is killed.


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=20, help="per family of the suite")
    parser.add_argument("--folder", type=Path, help="new folder, kept; left out = a temporary one")
    arguments = parser.parse_args()
    return checked(lambda folder, facts: check(folder, arguments.tasks, facts), arguments.folder)


def check(folder: Path, tasks: int, facts: Facts) -> None:
    packages(hydra_plugins__hydra_joblib_launcher="qfr[joblib]", psycopg2="psycopg2-binary")
    need("initdb", "postgres", "createdb", "pg_isready")
    grid = grid_of("f16,q4_k_m", "P0,P4", tasks)
    expected = played_plain(Place(folder / "plain"), grid, facts)
    services = Services(folder / "services")
    try:
        services.start_database()
        services.start_server()
        for outage in (
            Outage("the MLflow server", "server", services.kill_server, services.start_server),
            Outage("PostgreSQL", "database", services.kill_database, services.start_database),
        ):
            place = Place(folder / outage.name, services.uri, outage.name)
            comes_back(outage, place, grid, expected, facts)
        the_server_stays_away(services, folder, grid, expected, facts)
    finally:
        services.end()


class Services:
    """PostgreSQL and the MLflow server over it; each can be killed and started again at its address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._database, self._server = ExitStack(), ExitStack()
        self._ports = free_port(), free_port()
        self.uri = ""
        self._store = ""

    def start_database(self) -> None:
        made = postgres(self._folder / "postgres", self._ports[0], signal.SIGKILL)
        self._store = self._database.enter_context(made)

    def start_server(self) -> None:
        made = mlflow_server(self._folder, self._store, self._ports[1], signal.SIGKILL)
        self.uri = self._server.enter_context(made)

    def kill_database(self) -> None:
        self._database.close()

    def kill_server(self) -> None:
        self._server.close()

    def end(self) -> None:
        self.kill_server()
        self.kill_database()


@dataclass(frozen=True)
class Outage:
    """Something that is killed under a sweep and comes back."""

    what: str
    name: str
    # Of the experiment and its folder.
    kill: Callable[[], None]
    start: Callable[[], None]


def comes_back(
    outage: Outage, place: Place, grid: list[str], expected: dict[str, bytes], facts: Facts
) -> None:
    sweep = begun(place, grid)
    kept = place.episodes()
    outage.kill()
    away(place, sweep)
    outage.start()
    code = sweep.wait(1200)
    facts.check(
        f"{outage.what} was killed with {kept} episodes in the journals and came back: the sweep waited "
        f"and ended with exit code {code}",
        code == 0 and _BACK in place.said,
    )
    compare(place, expected, facts)


def the_server_stays_away(
    services: Services, folder: Path, grid: list[str], expected: dict[str, bytes], facts: Facts
) -> None:
    place, impatient = Place(folder / "away", services.uri, "away"), [*grid, "tracking.patience=10"]
    sweep = begun(place, impatient)
    services.kill_server()
    code = sweep.wait(1200)
    whole = re.search(r"(\d+) cells ran and are whole on disk", place.said)
    facts.check(
        f"the MLflow server stayed away: the grid was played on, {whole.group(1) if whole else 'NO'} cells "
        f"stand whole on disk, exit code {code}",
        code == 1 and whole is not None,
    )
    services.start_server()
    code, took = place.run([*impatient, *JOBLIB])
    logged = place.said.count("was played before and is logged now")
    facts.check(
        f"the same command again: {logged} cells logged without playing them, exit code {code}, {took:.0f} s",
        code == 0 and logged > 0,
    )
    compare(place, expected, facts)
    before = place.said.count("tokens evaluated (")
    code, took = place.run([*impatient, *JOBLIB])
    played = place.said.count("tokens evaluated (") - before
    facts.check(f"once more: exit code {code}, {played} walks played, {took:.0f} s", code == 0 and not played)


def begun(place: Place, grid: list[str]) -> subprocess.Popen[bytes]:
    """A sweep on two workers that has played a few episodes."""
    sweep = place.start([*grid, *JOBLIB])
    until("some episodes", lambda: place.episodes() > _FEW or sweep.poll() is not None, 300)
    return sweep


def away(place: Place, sweep: subprocess.Popen[bytes]) -> None:
    """Wait until the sweep has noticed that its store is away."""
    until("the sweep notices", lambda: _AWAY in place.said or sweep.poll() is not None, 300)


def compare(place: Place, expected: dict[str, bytes], facts: Facts) -> None:
    logs = place.logs()
    facts.check(f"{len(logs)} logs, one run each, byte for byte those of SQLite", logs == expected)


if __name__ == "__main__":
    sys.exit(main())
