"""The same tasks and faults as Inspect AI tasks, against an OpenAI-compatible server of llama.cpp.

Run by `compare.py` in Inspect AI's own virtual environment, where qfr's rooms without an engine are on the
path: ``python -m benchmarks.inspect_task JOB OUT --python PYTHON --connections N``. `PYTHON` is the
interpreter that runs the server. One server per model file; the clean passes of all its prompts are one
evaluation, the fault episodes of the certified tasks another.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import anyio.from_thread
import anyio.to_thread
import inspect_ai
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    Model,
    get_model,
)
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from benchmarks.job import Cell, Job, Measured, Outcome, faults_of, outcome, read_job, untold, write_measured
from benchmarks.processes import cpu_of
from benchmarks.turns import generation
from qfr.engine.base import Counters, EngineInfo, Native
from qfr.episode import Episodes
from qfr.errors import EngineError
from qfr.records import FaultKind, Generation
from qfr.world.base import Site, World
from qfr.world.base import Task as OrderTask

_STARTING_SECONDS = 60.0
_MODEL = "openai-api/llama/agent"
# Provider, service and name, as Inspect writes them.


class Conversation:
    """A conversation through Inspect's model. Implements `qfr.engine.base.Engine`, in a worker thread."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._messages: list[ChatMessage] = []
        self.generated = 0

    @property
    def info(self) -> EngineInfo:
        """Not told."""
        return untold("inspect")

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
        self._messages = [ChatMessageSystem(content=system), ChatMessageUser(content=task)]
        return anyio.from_thread.run(self._ask, max_tokens)

    def reply(self, observation: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Go on with it."""
        self._messages.append(ChatMessageUser(content=observation))
        return anyio.from_thread.run(self._ask, max_tokens)

    def counters(self) -> Counters:
        """Not told."""
        raise EngineError("a server has no tree to count against")

    def reset_counters(self) -> None:
        """Nothing to reset."""

    def close(self) -> None:
        """Nothing to close."""

    async def _ask(self, max_tokens: int) -> Generation:
        config = GenerateConfig(temperature=0.0, max_tokens=max_tokens, seed=1)
        answer = await self._model.generate(self._messages, config=config)
        self._messages.append(answer.choices[0].message)
        count = answer.usage.output_tokens if answer.usage else 0
        self.generated += count
        return generation(answer.completion, count, cut=answer.stop_reason == "max_tokens")


class Playing:
    """What is played at one server, as Inspect tasks."""

    def __init__(self, job: Job, world: World) -> None:
        self._job, self._world = job, world
        self._tasks = {task.id: task for task in world.tasks}
        self.played: list[Outcome] = []
        self.generated = 0

    def clean(self, cells: tuple[Cell, ...]) -> inspect_ai.Task:
        """The clean passes."""
        return self._task([(cell, task, None) for cell in cells for task in self._world.tasks])

    def faults(self, cells: tuple[Cell, ...]) -> inspect_ai.Task:
        """Every site of the certified tasks."""
        wanted: list[tuple[Cell, OrderTask, Site | None]] = []
        for cell in cells:
            passed = {
                one.task
                for one in self.played
                if (one.preset, one.prompt) == (cell.preset, cell.prompt) and one.tolerant
            }
            wanted += [(cell, task, site) for task, site in faults_of(self._world, passed)]
        return self._task(wanted)

    def _task(self, wanted: list[tuple[Cell, OrderTask, Site | None]]) -> inspect_ai.Task:
        samples = [
            Sample(input=task.text, target=str(task.answer), id=at) for at, (_, task, _) in enumerate(wanted)
        ]
        return inspect_ai.Task(
            dataset=MemoryDataset(samples), solver=self._episode(wanted), scorer=_success()
        )

    def _episode(self, wanted: list[tuple[Cell, OrderTask, Site | None]]) -> Solver:
        @solver
        def episode() -> Solver:
            async def solve(state: TaskState, generate: Generate) -> TaskState:
                cell, task, site = wanted[int(state.sample_id)]
                conversation = Conversation(get_model())
                kind = FaultKind.none if site is None else FaultKind.et
                episodes = Episodes(conversation, self._world, cell.system, self._job.rules())
                done = await anyio.to_thread.run_sync(episodes.play, "", task, kind, site)
                self.generated += conversation.generated
                self.played.append(outcome(cell, done))
                state.metadata["success"] = self.played[-1].tolerant
                return state

            return solve

        return episode()


@scorer(metrics=[accuracy()])
def _success() -> Scorer:
    async def judge(state: TaskState, target: Target) -> Score:
        return Score(value=bool(state.metadata["success"]))

    return judge


class Server:
    """llama-cpp-python's server for one model file."""

    def __init__(self, python: str, job: str, model: str, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        self._counts = folder / "counts"
        command = [python, "-m", "benchmarks.server", job, model, str(port), str(self._counts)]
        self._process = subprocess.Popen(command)
        self._await()

    def _await(self) -> None:
        end = time.monotonic() + _STARTING_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/models", timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        self._process.kill()
        raise SystemExit("the server did not start")

    def busy(self) -> float:
        """Processor seconds so far."""
        return cpu_of(self._process.pid)

    def close(self) -> int:
        """End it; tokens that it evaluated."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)
        return int(self._counts.read_text("ascii"))


def main() -> None:
    """Play a job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job")
    parser.add_argument("out")
    parser.add_argument("--python", required=True)
    parser.add_argument("--connections", type=int, default=1)
    arguments = parser.parse_args()
    job = read_job(Path(arguments.job))
    world = job.world()
    playing, seconds, busy, evaluated = Playing(job, world), 0.0, 0.0, 0
    for preset in job.presets:
        cells = job.of(preset)
        with tempfile.TemporaryDirectory() as folder:
            server = Server(arguments.python, arguments.job, cells[0].path, Path(folder))
            # Inspect remembers its models by name, and each file has a server at an address of its own.
            agent = get_model(_MODEL, base_url=server.url, api_key="none", memoize=False)
            started, before = time.perf_counter(), time.process_time() + server.busy()
            for stage in (playing.clean, playing.faults):
                logs = inspect_ai.eval(
                    stage(cells),
                    model=agent,
                    max_connections=arguments.connections,
                    max_samples=arguments.connections,
                    display="none",
                    log_dir=str(Path(folder) / "logs"),
                )
                if any(log.status != "success" for log in logs):
                    raise SystemExit(f"Inspect: {logs[0].status}: {logs[0].error}")
            seconds += time.perf_counter() - started
            busy += time.process_time() + server.busy() - before
            evaluated += server.close()
    measured = Measured(0.0, 0.0, seconds, busy, None, evaluated, playing.generated, 0, tuple(playing.played))
    write_measured(measured, Path(arguments.out))


if __name__ == "__main__":
    main()
