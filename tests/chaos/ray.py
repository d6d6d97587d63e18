"""A grid on Ray on this machine: a worker is killed, the command is given again, and the logs are whole.

    python -m tests.chaos.ray [--tasks 20] [--folder DIR]

Needs the extra [ray], in an environment of its own (it pins cloudpickle < 3). The logs have to be, byte for
byte, those of a run without Ray. A line for each fact; exit code 0: all held.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from pathlib import Path

from tests.chaos.services import until
from tests.chaos.sweeps import Facts, Place, checked, grid_of, packages, played_plain

RAY = (
    "hydra/launcher=ray", "hydra.launcher.ray.init.num_cpus=2", "hydra.launcher.ray.remote.num_cpus=1",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=20, help="per family of the suite")
    parser.add_argument("--folder", type=Path, help="new folder, kept; left out = a temporary one")
    arguments = parser.parse_args()
    return checked(lambda folder, facts: check(folder, arguments.tasks, facts), arguments.folder)


def check(folder: Path, tasks: int, facts: Facts) -> None:
    packages(ray="qfr[ray]", hydra_plugins__hydra_ray_launcher="qfr[ray]")
    grid = grid_of("f16,q4_k_m", "P0,P4", tasks)
    expected = played_plain(Place(folder / "plain"), grid, facts)

    whole = Place(folder / "whole")
    code, took = whole.run([*grid, *RAY])
    logs = whole.logs()
    facts.check(f"Ray, 2 workers: exit code {code}, {took:.0f} s", code == 0)
    facts.check(f"{len(logs)} logs, byte for byte those without Ray", logs == expected)

    place = Place(folder / "killed")
    sweep = place.start([*grid, *RAY])
    until("some episodes", lambda: place.episodes() > 20 or sweep.poll() is not None, 600)
    kept = place.episodes()
    os.kill(place.newest()[1], signal.SIGKILL)
    code = sweep.wait(1200)
    # `max_retries=0` in the preset keeps Ray from playing a lost walk silently again.
    told = "the launcher lost a worker or a job" in place.said
    facts.check(
        f"a worker was killed with {kept} episodes in the journals: the sweep said so and ended with "
        f"exit code {code}",
        code == 1 and told,
    )
    code, took = place.run([*grid, *RAY])
    resumed = re.findall(r"resumes after (\d+) episodes", place.said)
    after = ", ".join(resumed) or "no"
    facts.check(
        f"the same command again: exit code {code}, {took:.0f} s, cells went on after {after} episodes",
        code == 0 and bool(resumed),
    )
    logs = place.logs()
    facts.check(f"{len(logs)} logs, byte for byte those without Ray", logs == expected)


if __name__ == "__main__":
    sys.exit(main())
