"""What tells cells of equal names apart: another budget, build or setting; another prompt text or file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from qfr.facts import CellFacts

_Told = Callable[[CellFacts], str]

#: What a whole run has in common, in the order in which it is told.
_SHARED: tuple[_Told, ...] = (
    lambda facts: f"error budget {facts.error_budget}",
    lambda facts: f"step budget {facts.step_budget}",
    lambda facts: f"executor {facts.executor_sha256[:8]}",
    lambda facts: f"suite {facts.suite_sha256[:8]}",
    lambda facts: f"build {facts.llama_commit[:9]}",
    lambda facts: f"library {facts.library_sha256[:8]}",
    lambda facts: f"on {facts.device}",
    lambda facts: f"threads {facts.n_threads}/{facts.n_threads_batch}",
    lambda facts: f"batch {facts.n_batch}",
    lambda facts: f"streams {facts.streams}",
    lambda facts: f"template {facts.template_sha256[:8]}",
    lambda facts: f"schema {facts.schema_version}.{facts.identity_version}.{facts.scorer_version}",
)
#: What belongs to one cell.
_OWN: tuple[_Told, ...] = (
    lambda facts: f"prompt {facts.prompt_sha256[:8]}",
    lambda facts: f"fault {facts.fault_sha256[:8]}",
    lambda facts: f"file {facts.model_sha256[:8]}",
)
# The digest of the executor covers the budgets too.
_EXECUTOR, _BUDGETS = _SHARED[2], _SHARED[:2]


def contexts(facts: Iterable[CellFacts]) -> Mapping[str, str]:
    """Return what a reader needs besides the names of a cell, by cell_id; mostly empty.

    Where two cells of a model share all names, every cell of that model and suite carries whatever of its
    run differs between such twins, so that cells of one run still stand together.
    """
    given = tuple({one.cell_id: one for one in facts}.values())
    telling: dict[tuple[str, str], dict[_Told, None]] = defaultdict(dict)
    for members in _twins(given):
        differing = [told for told in _SHARED if len({told(one) for one in members}) > 1]
        if any(told in differing for told in _BUDGETS):
            differing = [told for told in differing if told is not _EXECUTOR]
        telling[members[0].model, members[0].suite] |= dict.fromkeys(differing)
    return {
        one.cell_id: ", ".join(told(one) for told in _SHARED if told in telling[one.model, one.suite])
        for one in given
    }


def told_apart(facts: Iterable[CellFacts]) -> Mapping[str, str]:
    """As `contexts`, and for cells that still share all names also their own prompt, fault text and file."""
    given = tuple({one.cell_id: one for one in facts}.values())
    shared = contexts(given)
    own: dict[str, str] = {}
    for members in _twins(given):
        differing = [told for told in _OWN if len({told(one) for one in members}) > 1]
        own |= {one.cell_id: ", ".join(told(one) for told in differing) for one in members}
    return {
        name: ", ".join(part for part in (text, own.get(name, "")) if part) for name, text in shared.items()
    }


def _twins(facts: Iterable[CellFacts]) -> list[list[CellFacts]]:
    found: dict[tuple[object, ...], list[CellFacts]] = defaultdict(list)
    for one in facts:
        names = (one.model, one.quant, one.prompt, one.fault, one.executor, one.suite, one.gate, one.trial)
        found[names].append(one)
    return [members for members in found.values() if len(members) > 1]
