"""GPU memory of a process, as told by a stand-in for NVIDIA's tool."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qfr.engine.files.vram import process_bytes

MIB = 1 << 20


def stand_in(folder: Path, apps: str, gpus: str, code: int = 0) -> str:
    """A `nvidia-smi` that answers the two questions; its PATH."""
    tool = folder / "nvidia-smi"
    answers = f"case \"$1\" in *compute-apps*) printf '{apps}';; *) printf '{gpus}';; esac"
    tool.write_text(f"#!/bin/sh\n{answers}\nexit {code}\n")
    tool.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("apps", "gpus", "code", "bytes_"),
    [
        ("41, 1000\\n42, 5310\\n42, 90\\n", "0, 9000\\n", 0, 5400 * MIB),
        ("", "0, 7000\\n1, 20\\n", 0, 7020 * MIB),
        ("42, [N/A]\\n", "0, 7000\\n", 0, 7000 * MIB),
        ("42, 5310\\n", "0, 7000\\n", 9, None),
        ("No devices were found\\n", "No devices were found\\n", 0, None),
    ],
)
def test_memory_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apps: str, gpus: str, code: int, bytes_: int | None
) -> None:
    monkeypatch.setenv("PATH", stand_in(tmp_path, apps, gpus, code))
    assert process_bytes(42) == bytes_


def test_no_tool_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert process_bytes(42) is None
