"""Launchers of other packages: whether one is installed, and what it says when it breaks."""

from __future__ import annotations

import multiprocessing
import re
import sys
from concurrent.futures import BrokenExecutor
from importlib.util import find_spec

from qfr.errors import ConfigError, MachineryError

# Package of a launcher's class → extra of ours that brings it, and the launcher's name.
_EXTRAS = {
    "hydra_joblib_launcher": ("joblib", "joblib"),
    "hydra_submitit_launcher": ("slurm", "submitit_slurm"),
    "hydra_ray_launcher": ("ray", "ray"),
}


def check_launcher(target: str) -> None:
    """See that the launcher's package is installed.

    Parameters
    ----------
    target : str
        Its class, `hydra_plugins.package.module.Class`.

    Raises
    ------
    ConfigError
        It is not; the message names the extra.
    """
    parts = target.split(".")
    if len(parts) < 3 or parts[0] != "hydra_plugins":
        return
    if find_spec(f"hydra_plugins.{parts[1]}") is None:
        extra, name = _EXTRAS.get(parts[1], ("", parts[1]))
        raise ConfigError(
            f"hydra/launcher={name} is not installed",
            hint=f"pip install 'qfr[{extra}]'" if extra else f"install the package that holds {target}",
        )


def launcher_errors() -> tuple[type[BaseException], ...]:
    """What launchers raise when a worker or a job is lost, or when they cannot take a setting.

    Lost: joblib's broken pool or its timeout, submitit's job without a result (a RuntimeError), Ray's own
    tree where Ray is loaded. Settings: ValueError, TypeError. What a job raises comes back as its result and
    is none of these.
    """
    ray = getattr(sys.modules.get("ray.exceptions"), "RayError", None)
    settings = (ValueError, TypeError)
    lost = (BrokenExecutor, RuntimeError, TimeoutError, multiprocessing.TimeoutError)
    return (*settings, *lost, *([ray] if isinstance(ray, type) else []))


def launch_failed(error: BaseException) -> MachineryError:
    """What a user reads when the launcher broke; the sweep is closed by then."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -\t")]
    # A job's own traceback stands between what the launcher says and the exception, which comes last.
    told = [one for one in reversed(lines[1:]) if re.match(r"[\w.]+(Error|Exception|Interrupt|Exit)\b", one)]
    text = re.sub(r"\s+", " ", " ".join([*lines[:1], *told[:1]]) or type(error).__name__)
    if isinstance(error, ValueError | TypeError):
        return MachineryError(
            f"the launcher does not work with its settings: {text[:400]}",
            hint="python run.py --cfg hydra --package hydra.launcher shows them",
        )
    return MachineryError(
        f"the launcher lost a worker or a job: {text[:400]}",
        hint="finished episodes are kept: the same command goes on where this one stopped",
    )
