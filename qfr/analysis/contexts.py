"""What a reader needs besides the names of a cell: what tells it from another cell of the same names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from qfr.analysis.trials import FOREIGN
from qfr.facts import CellFacts
from qfr.scope import Scope, group, labels, scope_of, varying

# A section of a page holds the presets, prompts and faults of each model under one setting.
_IN_ONE_SECTION = frozenset({"model", "quant", "prompt", "fault"})


def contexts(facts: Iterable[CellFacts]) -> Mapping[str, str]:
    """Return what tells each cell's setting from the others, by cell_id; empty where all ran under one.

    Presets, prompts and faults of a model under one setting stand together, so they carry the same text.
    """
    given = tuple({one.cell_id: one for one in facts}.values())
    sections: dict[tuple[str, ...], dict[Scope, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in group(given, _IN_ONE_SECTION, of=_with_gate):
        for cell in one.members:
            sections[cell.model, cell.suite, cell.executor][one.fixed].append(cell.cell_id)
    found: dict[str, str] = {}
    for (_, _, executor), settings in sections.items():
        texts = _of_logs(tuple(settings)) if executor == FOREIGN else labels(tuple(settings))
        for cells, text in zip(settings.values(), texts, strict=True):
            found |= dict.fromkeys(cells, text)
    return found


def _of_logs(settings: tuple[Scope, ...]) -> tuple[str, ...]:
    """Labels of imported logs: one key where one tells them all apart, the program before its budgets."""
    keys = sorted((key for key, _ in varying(settings)), key=lambda key: key.startswith("suite."))
    for key in keys:
        if len({one.get(key) for one in settings}) == len(settings):
            return tuple(f"{key}={one.told(key)}" for one in settings)
    return labels(settings)


def told_apart(facts: Iterable[CellFacts]) -> Mapping[str, str]:
    """As `contexts`, and for cells that still share all names also their own prompt, fault text and file."""
    given = tuple({one.cell_id: one for one in facts}.values())
    shared = contexts(given)
    found = {}
    names = [(one.model, one.quant, one.prompt, one.fault, one.executor, one.suite) for one in given]
    twins = {name: [one for one, mine in zip(given, names, strict=True) if mine == name] for name in names}
    for members in twins.values():
        texts = labels([scope_of(one) for one in members])
        for one, text in zip(members, texts, strict=True):
            told = shared[one.cell_id].split(", ") if shared[one.cell_id] else []
            told += [part for part in text.split(", ") if part and part not in told]
            found[one.cell_id] = ", ".join(told)
    return found


def _with_gate(facts: CellFacts) -> Scope:
    """A clean pass has no gate; it stands with the fault cells that follow it."""
    return Scope({"suite.gate": facts.gate} | dict(scope_of(facts)))
