"""Whether a tau2-bench file is from before 1.0.1, when simulations with invented tool names were dropped."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qfr.foreign.common import FailureKind, ForeignCall, ForeignEpisode, Release, Requestor

FIXED = "2026-04-29"
# Day of the change (its pull request 273) after which an invented name no longer crashes the reward replay.

_DAY = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})(?!\d)")
_SCORED_BY_REPLAY = ("user_stop", "agent_stop")


@dataclass(frozen=True)
class Dating:
    """A release and how it was found out."""

    release: Release
    reason: str
    survivors: int
    # Scored simulations in which the agent invented a name although the reward was replayed.


def day(timestamp: str) -> str | None:
    """Return the day of a timestamp as `2026-04-29`, None when it does not begin with one."""
    found = _DAY.match(timestamp)
    return "-".join(found.groups()) if found else None


def find_release(
    told: Release | None, days: list[str], episodes: tuple[ForeignEpisode, ...], *, has_modes: bool
) -> Dating:
    """Find out the release of the program that wrote a file. The file itself does not name it.

    Parameters
    ----------
    told : Release or None
        What the caller knows; it wins.
    days : list of str
        Days on which the run and its simulations began.
    episodes : tuple of ForeignEpisode
        Scored simulations.
    has_modes : bool
        Some simulation has the field ``mode``, which release 1.0.0 added.
    """
    survivors = sum(
        found.termination_reason in _SCORED_BY_REPLAY and any(map(_invented, found.calls))
        for found in episodes
    )
    if told is not None:
        return Dating(told, "as told", survivors)
    first = min(days, default=None)
    if first is not None and first < FIXED:
        return Dating(Release.before, f"the run began on {first}, the change is of {FIXED}", survivors)
    if survivors:
        return Dating(Release.since, f"{survivors} scored simulations hold an invented tool name", survivors)
    if not has_modes and episodes:
        why = "no simulation has the field 'mode', which 1.0.0 added"
        if first is not None:
            why += f"; yet the run began on {first}, after the change of {FIXED}: --release settles it"
        return Dating(Release.before, why, 0)
    if first is not None:
        why = f"the run began on {first}, after the change of {FIXED}, unless an older release was installed"
        return Dating(Release.since, why, 0)
    return Dating(Release.unknown, "the file has no date", 0)


def censoring(dating: Dating) -> list[str]:
    """What a reader must know about the tool-name channel."""
    if dating.release is Release.before:
        text = (
            f"written before tau2-bench 1.0.1 ({dating.reason}): a simulation in which the agent invented a "
            "tool name was dropped by the program, so the tool-name channel is censored and the success rate "
            "is that of the survivors"
        )
        if dating.survivors:
            text += f"; yet {dating.survivors} scored simulations hold such a name, so not all were dropped"
        return [text]
    if dating.release is Release.unknown:
        return [
            f"it is not known whether tau2-bench 1.0.1 or an earlier release wrote this ({dating.reason}); "
            "an earlier one dropped simulations with invented tool names, so the tool-name channel may be "
            "censored"
        ]
    return []


def _invented(call: ForeignCall) -> bool:
    return (
        call.requestor is Requestor.agent
        and call.failure is FailureKind.tool_name
        and not call.role_confusion
    )
