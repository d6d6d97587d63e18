"""A cell's ids as they can be planned: prompt, suite and build looked up, no model and no library loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata

from qfr.config import CellConfig, EngineKind
from qfr.engine.llama.library import commit_of
from qfr.errors import ConfigError
from qfr.grid.checks import build_world, suite_digest
from qfr.identity import clean_of, design_fields, design_id
from qfr.places import prompt_path
from qfr.prompts import Prompt, load_prompt, vary_prompt
from qfr.protocol import FORM_BLOCK
from qfr.shards import one_shard, with_shard
from qfr.world.base import tool_block


@dataclass(frozen=True)
class Design:
    """What a cell is, before it runs."""

    design_id: str
    # With its part behind it for a shard ("d-…@3of8").
    clean_design_id: str
    # Of the same cell without a fault.
    prompt: Prompt
    # With the world's tools where the cell asks for them.
    suite_sha256: str
    llama_commit: str
    llama_commit_source: str
    # table or none.


@cache
def declared_commit() -> tuple[str, str]:
    """llama.cpp's commit by the version of llama-cpp-python, and where it is known from (table or none).

    Nothing is loaded: the same on every machine with the same version, whatever it was built for.
    """
    try:
        version = metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        return "unknown", "none"
    return commit_of(version, "")


def design_of(cell: CellConfig) -> Design:
    """Ids of a cell; planning, registration and the job all take them from here.

    Raises
    ------
    UserError
        The prompt or the suite cannot be had.
    """
    prompt = vary_prompt(load_prompt(prompt_path(cell.prompt.file), cell.prompt.sha256), cell.prompt)
    if cell.prompt.bare and cell.prompt.sha256 is None:
        raise ConfigError(
            "prompt.bare=true needs the digest of the file, by which cells of several executors are paired",
            hint=f"prompt.sha256={prompt.sha256}",
        )
    if cell.prompt.bare and cell.executor.kind.text:
        prompt = prompt.followed_by(f"{tool_block(build_world(cell.suite))}\n\n{FORM_BLOCK}")
    elif cell.prompt.tools:
        prompt = prompt.followed_by(tool_block(build_world(cell.suite)))
    suite = suite_digest(cell.suite)
    # A scripted agent evaluates nothing and a server evaluates elsewhere: llama.cpp here does not count.
    commit, source = declared_commit() if cell.engine.kind is EngineKind.llama_cpp else ("", "none")
    shard = one_shard(cell.suite.shard, sum(cell.suite.families.values()))
    own, clean = (
        with_shard(
            design_id(one, prompt_sha256=prompt.sha256, suite_sha256=suite, llama_commit=commit), shard
        )
        for one in (cell, clean_of(cell))
    )
    return Design(own, clean, prompt, suite, commit, source)


def frozen_design(cell: CellConfig, design: Design) -> dict[str, object]:
    """Everything that the cell's design_id is the hash of."""
    return design_fields(
        cell,
        prompt_sha256=design.prompt.sha256,
        suite_sha256=design.suite_sha256,
        llama_commit=design.llama_commit,
    )
