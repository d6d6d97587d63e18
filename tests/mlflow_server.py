"""A real `mlflow server` that tests kill and start again, and a way to it that can be disturbed."""

from __future__ import annotations

import http.client
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class MlflowServer:
    """An `mlflow server` on loopback that keeps database and artifacts in a folder, and can die.

    Parameters
    ----------
    folder : Path
        Of the database, the artifacts and the server's log.
    database : Path
        A migrated database to begin with; it is copied.
    """

    def __init__(self, folder: Path, database: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(database, folder / "server.db")
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/server.db"]
        command += ["--artifacts-destination", str(self.folder / "served")]
        environment = os.environ | {
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        for _ in range(900):
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=1):
                    return
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                time.sleep(0.2)
        raise AssertionError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        """SIGKILL, to all its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def running_server(folder: Path, database: Path) -> Iterator[MlflowServer]:
    """A server that runs, and is gone afterwards."""
    server = MlflowServer(folder, database)
    try:
        server.start()
        yield server
    finally:
        server.kill()


class Proxy:
    """Passes requests on to a server, until it is told to answer 500, to be slow, or to lose the answer."""

    def __init__(self, target_port: int) -> None:
        self.broken = False
        # Answer 500 without asking the server.
        self.delay = 0.0
        # Seconds before a request is passed on.
        self.lose: str | None = None
        # Pass the next request whose path ends so on, and drop the connection instead of answering.
        self.lost = 0
        proxy, port = self, target_port

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if proxy.broken:
                    self._answer(500, b"the proxy is broken", "text/plain")
                    return
                time.sleep(proxy.delay)
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                if proxy.lose is not None and self.path.endswith(proxy.lose):
                    proxy.lose, proxy.lost = None, proxy.lost + 1
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self._answer(answer.status, data, answer.getheader("Content-Type", "application/json"))

            def _answer(self, status: int, data: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

            def log_message(self, *args: object) -> None:
                """Say nothing on the tests' terminal."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
