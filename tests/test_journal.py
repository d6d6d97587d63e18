"""Logs as bytes: what is read can be written and scored, and damage is one clear error."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from qfr.errors import LogError
from qfr.journal import Journal, decode, encode, log_bytes, read_log
from qfr.records import Policy
from qfr.scoring import score
from tests.builders import build_cell_episodes, orders20

BUILT = build_cell_episodes([2, None, 3, 1], orders20()[8:12])
LINE = encode(BUILT.faulted[0])


def changed(**values: object) -> bytes:
    """The line with other values on its top level."""
    return json.dumps(json.loads(LINE) | values).encode() + b"\n"


def test_a_log_is_the_same_whatever_order_it_was_played_in() -> None:
    assert log_bytes(reversed(BUILT.faulted)) == log_bytes(BUILT.faulted)
    assert log_bytes(read_log(log_bytes(BUILT.faulted), where="log")) == log_bytes(BUILT.faulted)


@pytest.mark.parametrize("gold", ["", "x", "1e9", "nan", "1/0", " 1", "9" * 5000, "{{ 7 * 7 }}"])
def test_a_gold_answer_that_is_no_decimal_is_damage(gold: str) -> None:
    """Scores compute with it: a hostile one must not get so far."""
    with pytest.raises(LogError, match="no plain decimal"):
        decode(changed(gold=gold), where="log")


@pytest.mark.parametrize("margin", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400])
def test_a_margin_that_is_no_finite_number_is_damage(margin: str) -> None:
    """JSON's reader lets them pass, and nothing could write them again."""
    turn = json.loads(LINE)["turns"][0]
    turn["generation"]["margins"] = [12345.5]
    line = changed(turns=[turn]).replace(b"12345.5", margin.encode())
    with pytest.raises(LogError, match="no finite number"):
        decode(line, where="log")


def test_another_schema_version_is_named_and_cut() -> None:
    with pytest.raises(LogError, match="schema version '4'") as caught:
        decode(changed(schema=4), where="episodes.jsonl, line 1")
    assert "episodes.jsonl, line 1" in str(caught.value)
    assert "the qfr version that wrote it" in str(caught.value)
    with pytest.raises(LogError) as caught:
        decode(changed(schema="\x1b[2J" * 5000), where="log")
    assert len(str(caught.value)) < 600


def test_what_is_read_can_be_scored() -> None:
    for episode in read_log(log_bytes(BUILT.faulted), where="log"):
        assert {score(episode, policy).delivered for policy in Policy} == {True}


def test_a_torn_last_line_is_cut_off_and_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for episode in BUILT.clean:
        journal.append(episode, {"seconds": 1.0})
    whole = journal.path.read_bytes()
    for cut in (1, 40, len(LINE) // 2):
        journal.path.write_bytes(whole[:-cut])
        again = Journal(tmp_path)
        assert again.torn_bytes > 0
        assert again.episodes() == BUILT.clean[:-1]
        journal.path.write_bytes(whole)
    assert Journal(tmp_path).torn_bytes == 0


def test_a_line_that_did_not_reach_the_disk_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses a line twice, once in the background: nothing is lost, nothing stands twice."""
    journal, refusals = Journal(tmp_path), [errno.ENOSPC, errno.ENOSPC]
    sync = os.fsync

    def refusing(handle: int) -> None:
        if refusals:
            raise OSError(refusals.pop(), "the disk is full")
        sync(handle)

    monkeypatch.setattr("os.fsync", refusing)
    first, second, third = BUILT.clean[:3]
    journal.append(first, {"seconds": 1.0})
    with pytest.raises(OSError, match="the disk is full"):
        journal.append(second, {"seconds": 1.0})
    assert journal.path.read_bytes() == encode(first)
    journal.append(second, {"seconds": 1.0})
    journal.append(third, {"seconds": 1.0})
    journal.settle()
    assert journal.path.read_bytes() == b"".join(map(encode, (first, second, third)))
    assert journal.timing_path.read_bytes().count(b"\n") == 3
