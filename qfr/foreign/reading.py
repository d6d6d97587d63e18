"""Any of the formats: which one a path holds, and its reader."""

from __future__ import annotations

from pathlib import Path

from qfr.errors import LogError, did_you_mean
from qfr.foreign.common import ForeignRun, Options
from qfr.foreign.node import Loaded, load, shown_name
from qfr.foreign.tau1 import read_trajectories
from qfr.foreign.tau2 import FOLDER, METADATA, read_folder, read_results

_FORMATS = "known are tau2-bench results (results.json, alone or with simulations/) and tau-bench v1 lists"
_RESULT_KEYS = ("timestamp", "info", "tasks", "simulations", "simulation_index")


def read_foreign(path: str | Path, options: Options | None = None) -> ForeignRun:
    """Read a file that holds one log. Raises `LogError` as `read_logs`, and where it holds several."""
    found = read_logs(path, options)
    if len(found) > 1:
        raise LogError(f"holds {len(found)} logs", where=str(path), hint="read_logs returns each of them")
    return found[0]


def read_logs(path: str | Path, options: Options | None = None) -> tuple[ForeignRun, ...]:
    """Read the logs of a file: of tau2-bench, or of tau-bench v1, one for each domain.

    Parameters
    ----------
    path : str or Path
        A results file, the folder of a run in folder form (or its `results.json`), or a trajectory list.
    options : Options, optional
        What the file does not say.

    Returns
    -------
    tuple of ForeignRun
        At least one.

    Raises
    ------
    LogError
        Nothing stands there, the format is unknown, or the log is damaged. The message names the line, or the
        key such as ``simulations[3].messages[14].role``.
    """
    place, given = Path(path), options or Options()
    if place.is_dir():
        if not (place / METADATA).is_file():
            raise LogError(f"holds no {METADATA}", where=str(place), hint=_FORMATS)
        return (read_folder(place / METADATA, given),)
    if not place.exists():
        near = did_you_mean(place.name, _beside(place))
        raise LogError(f"no such file{near}", where=str(place), hint=_FORMATS)
    loaded = load(place)
    name = shown_name(place.name)
    if isinstance(loaded.root.value, list):
        _check_list(loaded)
        return read_trajectories(loaded, name, given)
    if not isinstance(loaded.root.value, dict):
        raise LogError("no log: neither an object nor a list", where=name, hint=_FORMATS)
    _check_object(loaded)
    if (place.parent / FOLDER).is_dir() and not loaded.root.get(FOLDER).value:
        return (read_folder(place, given),)
    return (read_results(loaded, name, given),)


def _beside(place: Path) -> list[str]:
    try:
        return [each.name for each in place.parent.iterdir()]
    except OSError:
        return []


def _check_list(loaded: Loaded) -> None:
    """Refuse lists of something else with a word on what they seem to be."""
    for first in loaded.root.items():
        keys = first.keys()
        if "termination_reason" in keys and "messages" in keys:
            raise first.wrong(
                "these are simulations of tau2-bench without their file's head",
                "give the whole results.json: its info names the budget and the model",
            )
        if not {"traj", "reward"} & set(keys):
            raise first.wrong(
                f"no trajectory of tau-bench v1{_near(keys, ('task_id', 'reward', 'traj'))}", _FORMATS
            )
        return


def _check_object(loaded: Loaded) -> None:
    keys = loaded.root.keys()
    if "termination_reason" in keys and "messages" in keys:
        raise loaded.root.wrong(
            "this is one simulation", "give the folder that holds results.json and simulations/"
        )
    if not {"info", FOLDER} & set(keys):
        raise loaded.root.wrong(f"no results of tau2-bench{_near(keys, _RESULT_KEYS)}", _FORMATS)


def _near(keys: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    for key in keys:
        if key in wanted:
            continue
        if near := did_you_mean(key, wanted):
            return f": key {key[:40]!r}{near}"
    return ""
