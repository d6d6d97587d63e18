"""A small server that speaks the resolve API of the Hugging Face hub. Not a test file."""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class HubServer:
    """What the server holds and what it was asked."""

    files: dict[str, bytes]
    # "owner/name/file": content.
    url: str = ""
    requests: list[str] = field(default_factory=list)
    # "GET owner/name/revision/file bytes=10-".
    break_after: int | None = None
    # The next download breaks off after so many bytes.
    gated: bool = False
    pause: float = 0.0
    # Seconds between pieces of a download.


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _answer(self, *, body: bool) -> None:
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", unquote(self.path))
        wanted = self.headers.get("Range", "")
        if found is None:
            return self._refuse("RepoNotFound")
        repo, revision, name = found.groups()
        self.hub.requests.append(" ".join(filter(None, (self.command, repo, revision, name, wanted))))
        if not any(key.startswith(repo + "/") for key in self.hub.files):
            return self._refuse("RepoNotFound")
        if self.hub.gated:
            return self._refuse("GatedRepo", 403)
        if revision not in ("main", COMMIT):
            return self._refuse("RevisionNotFound")
        content = self.hub.files.get(f"{repo}/{name}")
        if content is None:
            return self._refuse("EntryNotFound")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._send(content, wanted, body=body)
        return None

    def _send(self, content: bytes, wanted: str, *, body: bool) -> None:
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        part = content[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if not body:
            return
        if self.hub.break_after is not None:
            part, self.hub.break_after = part[: self.hub.break_after], None
            self.close_connection = True
        for place in range(0, len(part), 1 << 20):
            self.wfile.write(part[place : place + (1 << 20)])
            time.sleep(self.hub.pause)

    def _refuse(self, code: str, status: int = 404) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def serve(files: dict[str, bytes]) -> Iterator[HubServer]:
    """The server, on a free port of the loopback interface."""
    hub = HubServer(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
