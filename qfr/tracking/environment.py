"""What MLflow reads from the environment, settled before it is imported. Imports nothing heavy.

MLflow looks at these variables while it is being imported, so the front doors call `settle` first. What the
user has set already stays, telemetry and silent truncation apart.

`MLFLOW_RUN_ID`, `MLFLOW_EXPERIMENT_ID`, `MLFLOW_EXPERIMENT_NAME` and `MLFLOW_TRACKING_URI` steer MLflow's
global functions only. Everything here goes through a client with an explicit store, experiment and run, so
they change nothing: the configuration alone says where a grid is logged and resumed.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

# Never left to chance: no telemetry; too long a value is an error instead of being cut; no queue that drops
# traces when it is full.
FIXED: Mapping[str, str] = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_TRUNCATE_LONG_VALUES": "false",
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
}

# MLflow's own retries go on for minutes without a word. These hold for reading; a run's own calls are tried
# once each (`one_try`) and repeated by whoever can say so.
# MLflow's progress bars and links would tear our own lines.
DEFAULTS: Mapping[str, str] = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}

_SECRET_VARIABLES = (
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_CONNECTION_STRING",
    "HF_TOKEN",
    "OPENAI_API_KEY",
    "PGPASSWORD",
)
# A database's address may carry them behind its `?` as well.
_SECRET_PARAMETER = re.compile(
    r"([?&;][\w.-]*(?:password|passwd|pwd|token|secret|key)[\w.-]*=)[^&;\s'\"]+", re.IGNORECASE
)


def settle() -> None:
    """Set what MLflow reads. Call it before anything imports mlflow; a later call still stops telemetry."""
    os.environ.update(FIXED)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    # Its warnings about tries that are repeated by themselves would tear our own lines as well.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    if "mlflow" in sys.modules:
        from mlflow.telemetry import set_telemetry_client

        stop: Callable[[], None] = set_telemetry_client
        stop()


@contextmanager
def one_try() -> Iterator[None]:
    """Let MLflow try each request once: whoever waits for the store repeats the call and says so. Besides, a
    request to create something that is sent twice by itself creates it twice."""
    name = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
    before = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def redact(text: str, uri: str = "") -> str:
    """Take every secret out of a text: user info and passwords in URIs, and what secret variables hold."""
    secrets = [os.environ.get(name, "") for name in _SECRET_VARIABLES]
    try:
        password = urlsplit(uri).password or ""
    except ValueError:
        password = ""
    secrets += [password, unquote(password)]
    for secret in secrets:
        if len(secret) >= 3:
            text = text.replace(secret, "***")
    return _SECRET_PARAMETER.sub(r"\1***", re.sub(r"(?<=://)[^\s'\"]*@", "***@", text))
