"""tau2-bench results: one `results.json`, or a folder with `results.json` and `simulations/<id>.json`.

The fields are those of tau2-bench 1.0.1; older files lack some, and what is missing is taken as the
program's own default. A simulation is *excluded* when the program did not score it: it ended as
``infrastructure_error`` (the program's metrics remove these first), or it has no reward and its end alone
does not decide. All others count as the reward says. By the program's rule that is 0 for every end but
``user_stop`` and ``agent_stop``, so an end by a limit or by an error of one side needs no reward in the file.

Releases before 1.0.1 dropped simulations in which the agent invented a tool name (`find_release`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from qfr.errors import LogError, did_you_mean
from qfr.foreign.common import (
    FailureKind,
    ForeignCall,
    ForeignEpisode,
    ForeignInfo,
    ForeignRun,
    Options,
    Release,
    Requestor,
    SourceKind,
)
from qfr.foreign.conversation import converse
from qfr.foreign.node import Loaded, Node, combined, load, shown, shown_name
from qfr.foreign.tau2_messages import read_messages
from qfr.foreign.trials import Plan, Simulation, sort_out
from qfr.records import Ending

METADATA = "results.json"
FOLDER = "simulations"
DEFAULT_MAX_STEPS = 200
DEFAULT_MAX_ERRORS = 10

# The records have one ending each; an end by an error of the agent, the user simulator or the program has
# none of its own there and is out_of_errors. `ForeignEpisode.termination_reason` keeps the log's word.
ENDINGS = {
    "user_stop": Ending.submitted,
    "agent_stop": Ending.submitted,
    "max_steps": Ending.out_of_steps,
    "timeout": Ending.out_of_steps,
    "too_many_errors": Ending.out_of_errors,
    "context_window_exceeded": Ending.out_of_context,
    "agent_error": Ending.out_of_errors,
    "user_error": Ending.out_of_errors,
    "infrastructure_error": Ending.out_of_errors,
    "unexpected_error": Ending.out_of_errors,
}
NEVER_SCORED = "infrastructure_error"
ZERO_BY_RULE = ("max_steps", "timeout", "too_many_errors", "agent_error", "user_error")
_STOPPED = ("user_stop", "agent_stop")


@dataclass
class _Seen:
    """What is gathered while simulations are read."""

    histories: dict[str, int]
    # Messages that a task gives at the front, by task.
    days: list[str]
    has_modes: bool = False
    ticks: int = 0


def read_folder(path: Path, options: Options) -> ForeignRun:
    """Read a run in folder form.

    Parameters
    ----------
    path : Path
        The metadata file; the simulations stand in the folder `simulations` beside it.

    Raises
    ------
    LogError
        A file is missing or damaged.
    """
    metadata = load(path)
    files = sorted((path.parent / FOLDER).glob("*.json"))
    _check_index(metadata.root, {file.stem for file in files})
    digests = [metadata.sha256]

    def simulations() -> Iterator[Node]:
        yield from metadata.root.get(FOLDER).drain()
        for file in files:
            loaded = load(file, f"{FOLDER}/{file.name}")
            digests.append(loaded.sha256)
            yield loaded.root

    return _read(metadata.root, simulations(), (shown_name(path.absolute().parent.name), digests), options)


def read_results(loaded: Loaded, name: str, options: Options) -> ForeignRun:
    """Read a run in one file. Raises `LogError` when it is damaged."""
    return _read(loaded.root, loaded.root.need(FOLDER).drain(), (name, [loaded.sha256]), options)


def _check_index(metadata: Node, found: set[str]) -> None:
    """The index, where there is one, names the files. One that it does not name yet is no damage."""
    for entry in metadata.get("simulation_index").items():
        if entry.need("id").name() not in found:
            raise entry.get("id").wrong(
                f"the index lists {shown(entry.get('id').name())}, but {FOLDER}/ has no such file",
                "the folder is incomplete; copy it again",
            )


def _read(
    root: Node, simulations: Iterator[Node], source: tuple[str, list[str]], options: Options
) -> ForeignRun:
    info = root.need("info")
    seen = _Seen(_histories(root), [])
    _note_day(root.get("timestamp"), seen)
    read = [_simulation(node, seen) for node in simulations]
    if not read:
        raise LogError("holds no simulation", where=root.source, hint="the run has finished none yet")
    name, digests = source
    sha256 = digests[0] if len(digests) == 1 else combined(digests)
    stated = _stated(root, info)
    trials = options.trials or (None if info.get("num_trials").missing else stated.trials)
    planned = options.tasks or tuple(seen.histories)
    found = sort_out(
        read,
        Plan(planned, trials, name),
        domain=stated.domain,
        cell_id=f"f-{sha256[:16]}",
        user_tools=options.user_tools | stated.user_tools,
    )
    dating = find_release(options.release, seen.days, found.episodes, has_modes=seen.has_modes)
    return ForeignRun(
        info=replace(
            stated,
            release=dating.release,
            release_reason=dating.reason,
            model=options.model or stated.model or name,
            user_tools=found.user_tools,
            trials=found.trials,
            plan_stated=bool(planned) and trials is not None,
            source=name,
            sha256=sha256,
        ),
        episodes=found.episodes,
        excluded=found.excluded,
        warnings=(
            *censoring(dating),
            *found.warnings,
            *_doubts(found.episodes, stated.max_errors or 0, seen.ticks),
        ),
    )


def _stated(root: Node, info: Node) -> ForeignInfo:
    """What the file's head says; what follows from the simulations is filled in later."""
    environment, agent, user = (info.get(key) for key in ("environment_info", "agent_info", "user_info"))
    domain = _text(environment, "domain_name")
    return ForeignInfo(
        kind=SourceKind.tau2,
        release=Release.unknown,
        release_reason="",
        model=_text(agent, "llm"),
        agent=_text(agent, "implementation"),
        user_model=_text(user, "llm"),
        domain=domain,
        git_commit=_text(info, "git_commit"),
        timestamp=_text(root, "timestamp"),
        trials=info.get("num_trials").count_or(0, 10_000),
        max_steps=info.get("max_steps").count_or(DEFAULT_MAX_STEPS),
        max_errors=info.get("max_errors").count_or(DEFAULT_MAX_ERRORS),
        seed=info.get("seed").whole_or_none(),
        user_tools=user_tools_of(domain) | _declared(root, environment),
    )


def _simulation(node: Node, seen: _Seen) -> Simulation:
    task = node.need("task_id").name()
    reason_at = node.need("termination_reason")
    reason = reason_at.text()
    if reason not in ENDINGS:
        raise reason_at.wrong(
            f"{shown(reason)} is no termination reason{did_you_mean(reason, ENDINGS)}",
            f"known are {', '.join(ENDINGS)}",
        )
    seen.has_modes |= not node.get("mode").missing
    _note_day(node.get("start_time"), seen)
    judged = node.get("reward_info")
    scored = reason in ZERO_BY_RULE or (reason != NEVER_SCORED and not judged.missing)
    messages = read_messages(node, seen.histories.get(task, 0)) if scored else None
    seen.ticks += messages is not None and messages.ticks
    return Simulation(
        task=task,
        trial=None if node.get("trial").missing else node.get("trial").count(),
        id=node.get("id").name_or(""),
        where=node.where,
        reason=reason,
        ending=ENDINGS[reason],
        reward=_reward(judged) if scored else None,
        conversation=None if messages is None else converse(messages.messages),
        completion_tokens=None if messages is None else messages.completion_tokens,
    )


def _reward(judged: Node) -> float:
    return 0.0 if judged.missing else judged.need("reward").number()


def _histories(root: Node) -> dict[str, int]:
    """Number of given messages by task, the tasks in the order of the file."""
    given = {}
    for task in root.get("tasks").items():
        history = task.get("initial_state")
        listed = () if history.missing else tuple(history.get("message_history").items())
        given[task.need("id").name()] = len(listed)
    return given


def _declared(root: Node, environment: Node) -> frozenset[str]:
    """Tools of the user that the file names: its definitions, and the user's actions in task solutions."""
    names: set[str] = set()
    if not environment.missing:
        names.update(environment.get("user_tool_defs").keys())
    for task in root.get("tasks").items():
        criteria = task.get("evaluation_criteria")
        actions = () if criteria.missing else criteria.get("actions").items()
        for action in actions:
            if action.get("requestor").text_or("") == Requestor.user:
                names.add(action.need("name").text())
    return frozenset(names)


def _note_day(node: Node, seen: _Seen) -> None:
    found = None if node.missing else day(node.text())
    if found is not None:
        seen.days.append(found)


def _text(node: Node, key: str) -> str:
    return "" if node.missing else node.get(key).text_or("")


def _doubts(episodes: tuple[ForeignEpisode, ...], max_errors: int, ticks: int) -> list[str]:
    """Where the file does not agree with what the program's code does, and what was not read."""
    said = []
    if ticks:
        said.append(
            f"{ticks} simulations are full-duplex recordings; their calls were read, not their speech"
        )
    dead = [found for found in episodes if found.termination_reason == "too_many_errors"]
    short = sum(found.errors() < max_errors for found in dead)
    if short:
        said.append(
            f"{short} simulations ended by too_many_errors with fewer failing calls than {max_errors}"
        )
    above = sum(found.success and found.errors() >= max_errors for found in episodes)
    if above and max_errors:
        said.append(
            f"{above} simulations succeeded with {max_errors} failing calls or more, at which a run ends"
        )
    odd = sum(found.success and found.termination_reason not in _STOPPED for found in episodes)
    if odd:
        said.append(f"{odd} simulations have reward 1 although they did not end by user_stop or agent_stop")
    return said


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


# The customer's phone in tau2-bench's telecom domain (Barres et al. 2025, arXiv:2506.07982): 30 tools.
TELECOM = frozenset(
    {
        "can_send_mms", "check_apn_settings", "check_app_permissions", "check_app_status",
        "check_data_restriction_status", "check_installed_apps", "check_network_mode_preference",
        "check_network_status", "check_payment_request", "check_sim_status", "check_status_bar",
        "check_vpn_status", "check_wifi_calling_status", "check_wifi_status", "connect_vpn", "disconnect_vpn",
        "grant_app_permission", "make_payment", "reboot_device", "reseat_sim_card", "reset_apn_settings",
        "run_speed_test", "set_apn_settings", "set_network_mode_preference", "toggle_airplane_mode",
        "toggle_data", "toggle_data_saver_mode", "toggle_roaming", "toggle_wifi", "toggle_wifi_calling",
    }
)  # fmt: skip


def user_tools_of(domain: str) -> frozenset[str]:
    """Return the user's tools of a published domain; empty where it has none or is not known."""
    return TELECOM if domain.startswith("telecom") else frozenset()
