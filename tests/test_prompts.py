"""Prompts reach the model byte for byte, and P0 to P4 keep the properties of Hu 2026, section 3."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

from qfr.errors import PromptError
from qfr.prompts import load_prompt
from qfr.world import tools

FOLDER = Path(__file__).parent.parent / "prompts"
NAMES = ("P0", "P1", "P2", "P3", "P4")
TEXTS = {name: (FOLDER / f"{name}.md").read_text(encoding="utf-8") for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_signatures_stand_verbatim_and_in_one_block(name: str) -> None:
    block = [line for line in TEXTS["P0"].splitlines() if line.startswith("- ")]
    for line, tool in zip(block, tools.COMMON, strict=True):
        assert line.startswith(f"- {tool.signature}: ")
    assert "\n".join(block) in TEXTS[name]


@pytest.mark.parametrize("name", NAMES)
def test_interface_and_literal_number(name: str) -> None:
    text = TEXTS[name]
    assert '{"tool": "<name>", "arguments": {"<argument>": <value>}}' in text
    assert "literal number" in text
    assert "JSON object" in text
    assert "report_failure" in text
    assert len(text.split()) <= (230 if name == "P0" else 150)


def test_only_p0_requires_attempts_and_has_an_example() -> None:
    assert "at least two attempts before you declare a tool permanently unavailable" in TEXTS["P0"]
    assert "Tools may fail and may be retried." in TEXTS["P0"]
    for name in NAMES[1:]:
        assert not re.search(r"attempt|at least|permanent|Observation:|Example", TEXTS[name])


def test_the_example_of_p0_is_right_and_uses_no_id_of_a_task() -> None:
    assert 80 * (100 - 10) / 100 == 72
    assert set(re.findall(r"[OC]-[0-9]+", TEXTS["P0"])) == {"O-0007", "C-0003"}


def test_styles() -> None:
    assert re.findall(r"^(\d)\. ", TEXTS["P3"], re.MULTILINE) == list("1234567")
    prose = {name: TEXTS[name].split("\n\n", 1)[1] for name in ("P1", "P2")}
    assert all(text.count("\n") == 1 for text in prose.values())
    assert max(len(line.split()) for line in TEXTS["P4"].split("\n\n", 1)[1].splitlines()) <= 8


def test_readme_holds_every_digest_and_word_count() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert hashlib.sha256((FOLDER / f"{name}.md").read_bytes()).hexdigest() in readme
    counts = " | ".join(str(len(TEXTS[name].split())) for name in NAMES)
    assert f"| Words | {counts} |" in readme


@pytest.mark.parametrize(
    "data",
    [b'${x} {{x}} %s {0} \\n {"a": 1}\r\n', "\ufeffä\u2028\x00 b".encode(), b"no newline", b"a\n\n\n"],
)
def test_bytes_survive(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "mein Prompt=ü.md"
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    prompt = load_prompt(path, digest)
    assert prompt.text.encode() == data
    assert prompt.sha256 == digest


def test_errors_say_what_where_and_what_next(tmp_path: Path) -> None:
    good = tmp_path / "P9.md"
    good.write_bytes(b"text")
    with pytest.raises(PromptError, match="no such prompt file") as missing:
        load_prompt(tmp_path / "P8.md", None)
    assert "P9.md" in str(missing.value)
    with pytest.raises(PromptError, match="folder holds no prompt"):
        load_prompt(tmp_path / "nowhere" / "P8.md", None)
    with pytest.raises(PromptError, match="this is a folder"):
        load_prompt(tmp_path, None)
    with pytest.raises(PromptError, match="pinned is 0000"):
        load_prompt(good, "0" * 64)
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    with pytest.raises(PromptError, match=r"not UTF-8 \(byte 3\)"):
        load_prompt(tmp_path / "latin.md", None)
    (tmp_path / "empty.md").write_bytes(b" \n")
    with pytest.raises(PromptError, match="is empty"):
        load_prompt(tmp_path / "empty.md", None)


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.md"
    path.write_bytes(b"text")
    path.chmod(0)
    if os.access(path, os.R_OK):  # the superuser reads everything

        def refuse(_: Path) -> bytes:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(PromptError, match="cannot be read"):
        load_prompt(path, None)
