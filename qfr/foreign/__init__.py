"""Logs that others already have, read into qfr's own records.

Two formats are read: **tau2-bench** results (one `results.json`, or a folder with `results.json` and
`simulations/`) and **tau-bench v1** trajectory lists. Everything here is pure: files in, frozen records out.

How a foreign log maps to the records
-------------------------------------
- One simulation is one `Episode` (fault ``none``). `Episode.task` is the task's id, `Episode.family` the
  domain, `Episode.trial` the trial; trials nest in tasks, so resample tasks.
- **One tool call that the agent asked for is one `Turn`**, in order. An agent message with several calls
  becomes several turns, the message's own text stands in the first of them. So the number of turns is the
  number of the agent's calls, and rates per turn are rates per agent call.
- Messages between agent and user are no turns; they are kept in `ForeignEpisode.talk`. Calls of the user
  simulator are no turns either; they are kept in `ForeignEpisode.calls` beside the agent's, in order.
- A `Generation` has no tokens: ``token_ids`` and ``margins`` are empty, ``logits_sha256`` is ``""``.
- Success is the file's reward, ``|reward - 1| <= 1e-6``. The episode says the same in its own terms: the gold
  answer is ``1``, the answer ``1`` for a success and ``0`` otherwise, so that `qfr.scoring` agrees.
- A refusal by a rule or a state is the records' channel ``policy``, which only logs of other programs have.

Rooms: `common` (the nouns), `node` (checked JSON), `conversation` (messages to turns, which way a call
failed), `tau2`, `tau2_messages`, `tau1` (the formats), `trials` (numbering, what is missing), `jsonl` (the
neutral format), `bfcl` and `inspect` (files that become such lines), `measures` (success, pass^k, budgets,
channels, recovery, length), `reading` (any of the tau formats).
"""

from qfr.foreign.common import (
    Excluded,
    FailureKind,
    ForeignCall,
    ForeignEpisode,
    ForeignInfo,
    ForeignRun,
    Options,
    Release,
    Requestor,
    SourceKind,
    Talk,
)
from qfr.foreign.reading import read_foreign, read_logs

__all__ = [
    "Excluded",
    "FailureKind",
    "ForeignCall",
    "ForeignEpisode",
    "ForeignInfo",
    "ForeignRun",
    "Options",
    "Release",
    "Requestor",
    "SourceKind",
    "Talk",
    "read_foreign",
    "read_logs",
]
