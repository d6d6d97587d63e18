"""The installed llama.cpp: version, commit, digest. A child process is asked, so nothing is loaded here."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata, util
from pathlib import Path

from qfr.engine import child
from qfr.errors import EngineError

# llama.cpp commits by version of llama-cpp-python, for builds that were made without git.
COMMITS = {"0.3.36": "0c1e57098bba43ac29e6e3b677cdceebdd22334f"}


@dataclass(frozen=True)
class LibraryFacts:
    """The llama.cpp that this installation loads."""

    version: str
    # Version of llama-cpp-python.
    commit: str
    # llama.cpp's commit; all 40 digits where the table confirms the library's short form.
    commit_source: str
    # library, table or none.
    commit_raw: str
    # As the library reports it ("" when it does not); "-dirty" is a false alarm of pip's own build.
    sha256: str
    # Digest over the names and bytes of libllama and libggml*.
    system_info: str
    # llama.cpp's line about CPU and GPU features.
    gpu_offload: bool
    # This build can place layers on a GPU.
    devices: tuple[str, ...]
    # GPUs that it sees.
    presets: tuple[str, ...]
    # Presets that its quantizer knows by name.


def commit_of(version: str, raw: str) -> tuple[str, str]:
    """llama.cpp's commit and where it is known from: library, table or none."""
    listed = COMMITS.get(version, "")
    short = raw.removesuffix("-dirty")
    if short and short != "unknown":
        return (listed if listed.startswith(short) else short), "library"
    return (listed, "table") if listed else ("unknown", "none")


def library_digest(folder: Path) -> str:
    """SHA-256 over names and contents of the shared libraries that evaluate, in name order."""
    digest = hashlib.sha256()
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        # A wheel holds each library under three names; the shortest is the one that is loaded.
        stem = path.name.split(".")[0]
        if stem == "libllama" or stem.startswith("libggml"):
            files.setdefault(stem, path)
    for stem, path in sorted(files.items()):
        digest.update(f"{stem}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def library_folder() -> Path:
    """Folder of the shared libraries.

    Raises
    ------
    EngineError
        llama-cpp-python is not installed.
    """
    spec = util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise EngineError("llama-cpp-python is not installed", hint="pip install llama-cpp-python==0.3.36")
    return Path(spec.origin).parent / "lib"


def facts_here() -> LibraryFacts:
    """Facts of the library as loaded into this process (loads it)."""
    from qfr.engine.llama import api as llama_api

    version = metadata.version("llama-cpp-python")
    raw = llama_api.reported_commit()
    commit, source = commit_of(version, raw)
    return LibraryFacts(
        version=version,
        commit=commit,
        commit_source=source,
        commit_raw=raw,
        sha256=library_digest(library_folder()),
        system_info=llama_api.system_info(),
        gpu_offload=llama_api.supports_offload(),
        devices=llama_api.devices() if llama_api.supports_offload() else (),
        presets=llama_api.presets(),
    )


@cache
def library_facts() -> LibraryFacts:
    """Facts of the installed library, found out in a child process once.

    Raises
    ------
    EngineError
        The library is not installed or does not load on this machine.
    """
    library_folder()
    done = subprocess.run(
        child.command("qfr.engine.llama.library"),
        capture_output=True,
        text=True,
        env=child.environment(),
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise EngineError(
            f"llama.cpp's library does not load (exit code {done.returncode})\n{last}",
            where=str(library_folder()),
            hint="a build from another machine may use instructions that this CPU lacks: reinstall it here",
        )
    fields = json.loads(done.stdout)
    return LibraryFacts(
        **{**fields, "devices": tuple(fields["devices"]), "presets": tuple(fields["presets"])}
    )


if __name__ == "__main__":
    print(json.dumps(asdict(facts_here())))
