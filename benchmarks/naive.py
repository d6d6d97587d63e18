"""The loop that a researcher writes first: one `create_chat_completion` of llama-cpp-python per turn.

Run by `compare.py`: ``python -m benchmarks.naive JOB OUT [--reset]``. World, faults, protocol and scores are
qfr's own, so that only the way to the next turn differs. Without `--reset` llama-cpp-python's prefix cache
helps, and an episode depends on the one before it; with it each call starts from nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from llama_cpp import Llama

from benchmarks.job import Job, Measured, play_job, read_job, untold, write_measured
from benchmarks.turns import generation
from qfr.engine.base import Counters, EngineInfo, Native
from qfr.errors import EngineError
from qfr.records import Generation


class ChatLoop:
    """Messages in, text out. Implements `qfr.engine.base.Engine`."""

    def __init__(self, path: str, job: Job, *, reset: bool) -> None:
        self._llama = Llama(
            path,
            n_ctx=job.n_ctx,
            n_batch=job.n_batch,
            n_ubatch=job.n_batch,
            n_threads=job.n_threads,
            n_threads_batch=job.n_threads,
            flash_attn=job.flash_attn,
            n_gpu_layers=-1,
            verbose=False,
        )
        self._reset = reset
        self._messages: list[dict[str, str]] = []
        self.generated = self.evaluated = 0
        plain_eval = self._llama.eval

        def counting_eval(tokens: Sequence[int]) -> None:
            self.evaluated += len(tokens)
            plain_eval(tokens)

        self._llama.eval = counting_eval

    @property
    def info(self) -> EngineInfo:
        """Not told."""
        return untold("naive")

    def begin(
        self,
        system: str,
        task: str,
        max_tokens: int,
        forced: str | None = None,
        native: Native | None = None,
        trial: int = 0,
    ) -> Generation:
        """Start a conversation."""
        self._messages = [{"role": "system", "content": system}, {"role": "user", "content": task}]
        return self._ask(max_tokens)

    def reply(self, observation: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Go on with it."""
        self._messages.append({"role": "user", "content": observation})
        return self._ask(max_tokens)

    def counters(self) -> Counters:
        """Not told."""
        raise EngineError("a chat loop has no tree to count against")

    def reset_counters(self) -> None:
        """Nothing to reset."""

    def close(self) -> None:
        """Free the model's memory."""
        self._llama.close()

    def _ask(self, max_tokens: int) -> Generation:
        if self._reset:
            self._llama.reset()
        answer = self._llama.create_chat_completion(
            messages=self._messages, temperature=0.0, top_k=1, max_tokens=max_tokens, seed=1
        )
        choice = answer["choices"][0]
        text = choice["message"]["content"] or ""
        self._messages.append({"role": "assistant", "content": text})
        count = answer["usage"]["completion_tokens"]
        self.generated += count
        return generation(text, count, cut=choice["finish_reason"] == "length")


def main(job_path: str, out: str, *, reset: bool) -> None:
    """Play a job."""
    job = read_job(Path(job_path))
    loops: list[ChatLoop] = []

    def load(path: str) -> ChatLoop:
        loops.append(ChatLoop(path, job, reset=reset))
        return loops[-1]

    played, seconds, busy = play_job(job, load)
    evaluated, generated = sum(loop.evaluated for loop in loops), sum(loop.generated for loop in loops)
    write_measured(Measured(0.0, 0.0, seconds, busy, None, evaluated, generated, 0, tuple(played)), Path(out))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], reset="--reset" in sys.argv)
