"""What MLflow reads from the environment, settled before it is imported. Imports nothing heavy.

MLflow looks at these variables while it is being imported, so the front doors call `settle` first. What the
user has set already stays, telemetry and silent truncation apart.

`MLFLOW_RUN_ID`, `MLFLOW_EXPERIMENT_ID`, `MLFLOW_EXPERIMENT_NAME` and `MLFLOW_TRACKING_URI` steer MLflow's
global functions only. Everything here goes through a client with an explicit store, experiment and run, so
they change nothing: the configuration alone says where a grid is logged and resumed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

# Never left to chance: no telemetry; too long a value is an error instead of being cut; no queue that drops
# traces when it is full.
FIXED: Mapping[str, str] = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_TRUNCATE_LONG_VALUES": "false",
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
}

# MLflow's own retries go on for minutes; episodes are safe in the journal, so an error can come early.
# MLflow's progress bars and links would tear our own lines.
DEFAULTS: Mapping[str, str] = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}

_SECRET_VARIABLES = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")


def settle() -> None:
    """Set what MLflow reads. Call it before anything imports mlflow; a later call still stops telemetry."""
    os.environ.update(FIXED)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if "mlflow" in sys.modules:
        from mlflow.telemetry import set_telemetry_client

        stop: Callable[[], None] = set_telemetry_client
        stop()


def redact(text: str, uri: str = "") -> str:
    """Take every secret out of a text: user info in URIs, passwords and tokens of MLflow's variables."""
    secrets = [os.environ.get(name, "") for name in _SECRET_VARIABLES]
    try:
        password = urlsplit(uri).password or ""
    except ValueError:
        password = ""
    secrets += [password, unquote(password)]
    for secret in secrets:
        if len(secret) >= 3:
            text = text.replace(secret, "***")
    return re.sub(r"(?<=://)[^\s'\"]*@", "***@", text)
