"""The report behind a card."""

from __future__ import annotations

from pathlib import Path

from qfr.closing.reporting import ReportRequest, kept_settings, make_report
from qfr.records import Policy
from qfr.report.content.build import Report
from qfr.scoring import SCORER_VERSION
from qfr.stats.intervals import Method
from qfr.tracking.store import Store

_MARGIN = 5.0


def kept_request(store: Store, sweep: str) -> tuple[Policy, float]:
    """Policy and margin of a sweep's own report."""
    kept = kept_settings(store, sweep)
    policy, margin = kept.get("policy", Policy.tolerant), kept.get("margin", _MARGIN)
    assert isinstance(policy, Policy)
    assert isinstance(margin, float | int)
    return policy, float(margin)


def card_report(store: Store, sweep: str, policy: Policy, margin: float) -> Report:
    """The report that a card is made of: presets against each other, with the exact bootstrap."""
    request = ReportRequest(
        sweep=sweep,
        experiments=(),
        condition="",
        score_version=str(SCORER_VERSION),
        policy=policy,
        vary="quant",
        method=Method.EXACT,
        resamples=20_000,
        seed=20260101,
        out=Path(),
        command="",
        margin=margin,
        transcripts=0,
    )
    return make_report(store, request)[0]
