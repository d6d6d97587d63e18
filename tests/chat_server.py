"""Servers on loopback for tests of served models: a real one, and one that misbehaves. Not a test file."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

REFERENCE = Path(__file__).parent.parent / "qfr" / "reference" / "models" / "ref_llama-F16.gguf"


@dataclass
class Reply:
    """What the server sends to one request."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    # Bytes after which the connection breaks, though more were promised.
    slow: float = 0.0
    # Seconds before anything is sent.


def completion(text: str | None, finish: str = "stop", **more: object) -> Reply:
    """A well-formed answer."""
    message = {"role": "assistant", "content": text}
    body: dict[str, object] = {
        "id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }  # fmt: skip
    return Reply(body=json.dumps(body | more).encode())


@dataclass
class Odd:
    """A server whose answers a test chooses, and what it was asked."""

    answer: Callable[[dict[str, object]], Reply]
    models: tuple[dict[str, object], ...] = ({"id": "m", "object": "model"},)
    pages: dict[str, dict[str, object]] = field(default_factory=dict)
    # Paths beside /v1 that exist.
    url: str = ""
    asked: list[dict[str, object]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    # Authorization headers.
    lock: Lock = field(default_factory=Lock)


class _Handler(BaseHTTPRequestHandler):
    odd: Odd

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            return self._send(Reply(body=json.dumps({"data": self.odd.models}).encode()))
        page = self.odd.pages.get(self.path)
        return self._send(Reply(404, b"{}") if page is None else Reply(body=json.dumps(page).encode()))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.odd.lock:
            self.odd.asked.append(request)
            self.odd.keys.append(self.headers.get("Authorization", ""))
            reply = self.odd.answer(request)
        self._send(reply)

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _send(self, reply: Reply) -> None:
        time.sleep(reply.slow)
        try:
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply.body)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body if reply.cut is None else reply.body[: reply.cut])
        except (BrokenPipeError, ConnectionResetError):
            return  # The client has given up, as some tests want.
        if reply.cut is not None:
            self.close_connection = True


@contextmanager
def odd_server(odd: Odd) -> Iterator[Odd]:
    """Serve on loopback."""
    handler = type("Handler", (_Handler,), {"odd": odd})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        odd.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield odd
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def llama_server(folder: Path, model: Path = REFERENCE) -> Iterator[str]:
    """llama-cpp-python's own server with a real GGUF; its address."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--model", str(model), "--host", "127.0.0.1", "--port", str(port), "--n_ctx", "4096"]
    # The file's own template, not llama-cpp-python's idea of one.
    arguments += ["--n_threads", "1", "--n_threads_batch", "1", "--model_alias", "ref"]
    arguments += ["--chat_format", "chat_template.default"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "llama_cpp.server", *arguments],
            stdout=log,
            stderr=log,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/v1/models", process, folder / "server.log")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert process.poll() is None, log.read_text("utf-8", "replace")
            time.sleep(0.2)
    raise AssertionError("the server did not come up: " + log.read_text("utf-8", "replace"))
