"""tau2-bench result files of the real shape, made from a few numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: Text of a failing call by channel.
FAILURES = {
    "tool_name": "Error: Tool 'find_order' not found.",
    "arguments": "Error: get_order_details() missing 1 required positional argument: 'order_id'",
    "entity": "Error: Order not found",
    "policy": "Error: Non-pending order cannot be cancelled",
}


@dataclass(frozen=True)
class Simulated:
    """One simulation: whether it succeeds, the agent's failing calls by channel, the user's failing calls."""

    success: bool
    failing: tuple[str, ...] = ()
    user_failing: int = 0
    reason: str = "user_stop"


Row = tuple[Simulated | None, ...]
# The trials of one task; None: the file lacks the simulation.


def write_tau2(
    path: Path, rows: Sequence[Row], *, model: str = "vendor/model", user: str = "gpt-4.1", errors: int = 10
) -> Path:
    """Write a single-file result with one row of trials per task; returns the path."""
    path.write_text(json.dumps(results(rows, model, user, errors)), encoding="utf-8")
    return path


def results(rows: Sequence[Row], model: str, user: str, errors: int) -> dict[str, object]:
    """The file's content."""
    return {
        "timestamp": "2026-08-03T09:59:00.000000",
        "info": {
            "git_commit": "a2c0247",
            "num_trials": max(map(len, rows)),
            "max_steps": 200,
            "max_errors": errors,
            "user_info": {"implementation": "user_simulator", "llm": user, "llm_args": {}},
            "agent_info": {"implementation": "llm_agent", "llm": model, "llm_args": {}},
            "environment_info": {
                "domain_name": "retail",
                "policy": "# Retail agent policy",
                "tool_defs": None,
            },
            "seed": 300,
        },
        "tasks": [{"id": str(task)} for task in range(len(rows))],
        "simulations": [
            _simulation(str(task), trial, one)
            for task, row in enumerate(rows)
            for trial, one in enumerate(row)
            if one is not None
        ],
    }


def _simulation(task: str, trial: int, one: Simulated) -> dict[str, object]:
    messages: list[dict[str, object]] = [{"role": "user", "content": "Cancel #W1.", "tool_calls": None}]
    asked = [("assistant", channel) for channel in one.failing] + [("user", "entity")] * one.user_failing
    for at, (requestor, channel) in enumerate([*asked, ("assistant", "")]):
        tool = "find_order" if channel == "tool_name" else "get_order_details"
        call = {"id": f"c{at}", "name": tool, "arguments": {"order_id": "#W1"}, "requestor": requestor}
        text = FAILURES.get(channel, '{"status": "pending"}')
        messages += [
            {"role": requestor, "content": None, "tool_calls": [call], "usage": {"completion_tokens": 10}},
            {"role": "tool", "id": f"c{at}", "content": text, "requestor": requestor, "error": bool(channel)},
        ]
    messages.append({"role": "user", "content": "###STOP###", "tool_calls": None})
    return {
        "id": f"s-{task}-{trial}",
        "task_id": task,
        "trial": trial,
        "seed": 300,
        "mode": "half_duplex",
        "start_time": "2026-08-03T10:00:00.000000",
        "termination_reason": one.reason,
        "reward_info": None if one.reason == "infrastructure_error" else {"reward": float(one.success)},
        "messages": [{**message, "turn_idx": at} for at, message in enumerate(messages)],
    }
