"""llama-cpp-python's own OpenAI server, counting the tokens that it evaluates.

Run by `compare.py`: ``python -m benchmarks.server JOB GGUF PORT COUNTS``. The server is unchanged; only
`Llama.eval` is wrapped, and the count is written when the server ends.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from llama_cpp import Llama
from llama_cpp.server.app import create_app
from llama_cpp.server.settings import ModelSettings, ServerSettings

from benchmarks.job import read_job


def main(job_path: str, model: str, port: int, counts: Path) -> None:
    """Serve until Ctrl-C."""
    job, evaluated = read_job(Path(job_path)), 0
    plain_eval = Llama.eval

    def counting_eval(self: Llama, tokens: Sequence[int]) -> None:
        nonlocal evaluated
        evaluated += len(tokens)
        plain_eval(self, tokens)

    Llama.eval = counting_eval
    settings = ModelSettings(
        model=model,
        model_alias="agent",
        n_ctx=job.n_ctx,
        n_batch=job.n_batch,
        n_ubatch=job.n_batch,
        n_threads=job.n_threads,
        n_threads_batch=job.n_threads,
        flash_attn=job.flash_attn,
        n_gpu_layers=-1,
        verbose=False,
    )
    app = create_app(server_settings=ServerSettings(), model_settings=[settings])
    # uvicorn closes its connections and raises the signal again.
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
    counts.write_text(str(evaluated), encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
