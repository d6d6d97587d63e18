"""One plain dataclass per configuration group.

The classes carry no defaults: each default stands once, in YAML under `conf/`. They are filled and checked
as a closed schema by the front door, and are plain Python afterwards. Every field says whether it is part of
a cell's identity (`identity()` or `aside()`); `qfr.identity` turns the marked fields into ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qfr.asides import RegistrationConfig as RegistrationConfig
from qfr.asides import ReportConfig as ReportConfig
from qfr.asides import TrackingConfig as TrackingConfig
from qfr.choices import PRESET_BITS as PRESET_BITS
from qfr.choices import SERVED_BITS as SERVED_BITS
from qfr.choices import EngineKind as EngineKind
from qfr.choices import ExecutorKind as ExecutorKind
from qfr.choices import Gate as Gate
from qfr.choices import Mode as Mode
from qfr.choices import Noise as Noise
from qfr.choices import Thinking as Thinking
from qfr.choices import Traces as Traces
from qfr.choices import (
    aside,
    check_among,
    check_at_least,
    check_digest,
    check_name,
    check_preset,
    identity,
)
from qfr.clauses import BASES, Clause, changes, is_base, read_clause, variant_name
from qfr.errors import ConfigError, did_you_mean
from qfr.records import FaultKind, Policy
from qfr.rewrites import read_rewrites
from qfr.served import ServerConfig as ServerConfig
from qfr.shards import read_shards

# Sequences of one context that llama.cpp can hold apart.
MAX_STREAMS = 256


@dataclass
class FileConfig:
    """One published GGUF file of a model."""

    filename: str = aside()
    # Name in the repository (the first part for split files).
    sha256: str | None = identity()
    # Pinned digest; null = unpinned, recorded at first use.
    bytes: int | None = aside()
    # Published size.

    def __post_init__(self) -> None:
        check_digest("model.files.*.sha256", self.sha256)


@dataclass
class ModelConfig:
    """Where a model's GGUF files come from. Looked up in the order of the fields."""

    name: str = identity()
    # Short name in tables; the front door names it after its file when it is not given.
    path: str | None = identity()
    # A GGUF of exactly the asked preset; wins over everything else.
    base: str | None = identity()
    # A user's own F16/BF16/F32 GGUF from which the preset is derived.
    folder: str | None = aside()
    # Local folder that is searched for the file names first.
    package: str | None = aside()
    # Python package that ships the files.
    repo_id: str | None = identity()
    # Hugging Face repository.
    revision: str | None = identity()
    # Pinned revision (commit) of the repository.
    files: dict[str, FileConfig] = identity()
    # Published files by preset.
    derive_from: str | None = identity()
    # Preset among `files` from which presets that are not published are derived; null = none is.
    allow_requantize: bool = identity()
    # Allow deriving from a file that is itself quantized (marked as such everywhere).
    template: str | None = identity()
    # File with a chat template that takes the place of the GGUF's own.
    template_options: dict[str, Any] | None = identity()
    # More variables of the chat template, such as enable_thinking; null = none.
    reference_agent: bool = aside()
    # A small agent of our own, sensitive by design and never evidence about another model.
    license: str | None = aside()
    suite: str | None = aside()
    # The suite that it was made for; null = none in particular.

    def __post_init__(self) -> None:
        check_name("model.name", self.name)
        if self.path is not None and self.base is not None:
            raise ConfigError(
                "model.path and model.base are both set",
                hint="path = a file of the very preset; base = an F16/BF16 file to derive it from. Give one",
            )
        if self.derive_from is not None and self.derive_from not in self.files:
            raise ConfigError(
                f"model.derive_from={self.derive_from!r} is not among model.files ({', '.join(self.files)})"
                + did_you_mean(self.derive_from, self.files)
            )


@dataclass
class QuantConfig:
    """The quantization preset."""

    preset: str = identity()
    # llama.cpp's name: Q8_0, Q4_K_M, IQ4_XS, F16 ...
    imatrix: str | None = identity()
    # Importance matrix used when the preset is derived here.

    def __post_init__(self) -> None:
        self.preset = self.preset.upper()
        check_preset("quant.preset", self.preset)


@dataclass
class PromptConfig:
    """A system prompt: the exact bytes of one file."""

    name: str = identity()
    file: str = aside()
    # Path; relative paths are looked up in prompts/.
    sha256: str | None = identity()
    # Pinned digest; null = not pinned.
    worlds: list[str] | None = aside()
    # Worlds that it is written for; null = not stated.
    tools: bool = identity()
    # Append the world's tools to the text: the longer text is the prompt, digest included.
    bare: bool = identity()
    # The text says nothing of tools and of the form of a call: the text protocol appends both, and with
    # executor=native the chat template shows the tools.
    base: str | None = identity()
    # A prompt of qfr (P0 to P4) whose clauses are switched; null = the file itself is the base.
    clauses: list[str] = identity()
    # Clauses to switch on, short for prompt.<clause>=true; empty once they are.
    worked_example: bool | None = identity()
    # Each clause: true = the prompt has it, false = it has not, null = as the base (`qfr.clauses`).
    tools_may_fail: bool | None = identity()
    retry_allowed: bool | None = identity()
    retry_required: bool | None = identity()
    report_after_attempts: bool | None = identity()
    check_before_repeating: bool | None = identity()
    no_invented_values: bool | None = identity()
    literal_number: bool | None = identity()
    rewrites: list[str] = identity()
    # Transformations of the text that keep what it says (`qfr.rewrites`).
    rewrite_seed: int = identity()
    # Which variant of each transformation.

    def __post_init__(self) -> None:
        self._switch_clauses()
        self._choose_base()
        self.rewrites = read_rewrites(self.rewrites)
        check_at_least("prompt.rewrite_seed", self.rewrite_seed, 0)
        if not self.rewrites:
            self.rewrite_seed = 0
        self._name_variant()
        check_name("prompt.name", self.name)
        check_digest("prompt.sha256", self.sha256)

    @property
    def switches(self) -> dict[Clause, bool]:
        """The clauses that are switched on or off."""
        given = {clause: getattr(self, clause.value) for clause in Clause}
        return {clause: value for clause, value in given.items() if value is not None}

    @property
    def known(self) -> bool:
        """The base is a prompt of qfr, whose clauses have names."""
        return is_base(self.base or self.name, self.sha256)

    def _switch_clauses(self) -> None:
        for name in self.clauses:
            clause = read_clause("prompt.clauses", name)
            if getattr(self, clause.value) is False:
                raise ConfigError(
                    f"prompt.clauses has {clause}, and prompt.{clause}=false takes it away",
                    hint="say it once",
                )
            setattr(self, clause.value, True)
        self.clauses = []

    def _choose_base(self) -> None:
        """Take file, digest and worlds from the base that is named."""
        if self.base is None or self._is_variant_of(self.base):
            return
        if self.base not in BASES:
            raise ConfigError(
                f"prompt.base={self.base!r} is no prompt of qfr" + did_you_mean(self.base, BASES),
                hint=f"one of {', '.join(BASES)}; for a text of your own prompt.file=FILE prompt.name=NAME",
            )
        if self.file not in {f"{name}.md" for name in BASES}:
            raise ConfigError("prompt.base and prompt.file are both set", hint="give one of them")
        if self.name in BASES:
            self.name = self.base
        self.file = f"{self.base}.md"
        self.sha256, world = BASES[self.base]
        self.worlds = [world]

    def _is_variant_of(self, base: str) -> bool:
        return base not in BASES and self.name.startswith(base)

    def _name_variant(self) -> None:
        """Name what differs from the base: P1+retry_required, P0-retry_required, P2_headings.7."""
        base = self.base or self.name
        removed, added = changes(base, self.known, self.switches)
        end = variant_name("", removed, added)
        if self.rewrites:
            end += f"_{'.'.join(self.rewrites)}.{self.rewrite_seed}"
        if end:
            if not self.known and base in BASES:
                raise ConfigError(
                    f"prompt.name={base} is the name of a prompt of qfr, and {self.file} is another text",
                    hint="prompt.name=NAME of your own",
                )
            if self.base is None or self.name.startswith(base):
                self.base, self.name = base, base + end


@dataclass
class FaultConfig:
    """What is injected."""

    kind: FaultKind = identity()
    code: str = identity()
    # Error code in the observation, of kinds that show an error.
    message: str = identity()
    # Error message in the observation.
    times: int = identity()
    # er: failures of the call before it succeeds.
    retry_after: int = identity()
    # rl: turns that the tool has to be left alone before it answers again.

    def __post_init__(self) -> None:
        check_at_least("fault.times", self.times, 1)
        check_at_least("fault.retry_after", self.retry_after, 1)


@dataclass
class SuiteConfig:
    """The tasks and their budgets."""

    name: str = identity()
    world: str = identity()
    # Which world generates the tasks: a name (orders, ledger), or module:factory for one's own.
    version: int = identity()
    # Version of the suite's generator.
    families: dict[str, int] = identity()
    # Number of tasks per family.
    seed: int = identity()
    # Seed of all values and ids.
    grid: str = identity()
    # cents = realistic amounts; round = a small grid of round amounts.
    options: dict[str, Any] = identity()
    # Whatever else the world can be told.
    step_budget: int = identity()
    # Model turns per episode at most.
    error_budget: int = identity()
    # Failed calls of the agent per episode at most, cumulative.
    gate: Gate = identity()
    # Fault episodes on certified tasks only, or on all.
    shard: str | None = aside()
    # 3/8 = play the third of eight parts of the tasks; all/8 = all eight, apart; null = the whole cell.

    def __post_init__(self) -> None:
        check_name("suite.name", self.name)
        check_at_least("suite.step_budget", self.step_budget, 1)
        check_at_least("suite.error_budget", self.error_budget, 0)
        for family, count in self.families.items():
            check_at_least(f"suite.families.{family}", count, 0)
        if sum(self.families.values()) == 0:
            raise ConfigError("the suite has no tasks", where="suite.families", hint="give a family a count")
        read_shards(self.shard, sum(self.families.values()))


@dataclass
class ExecutorConfig:
    """How turns are turned into calls."""

    kind: ExecutorKind = identity()
    max_tokens: int = identity()
    # Generated tokens per turn at most.
    thinking: Thinking = identity()
    # native: how thoughts of earlier turns are shown.

    def __post_init__(self) -> None:
        check_at_least("executor.max_tokens", self.max_tokens, 1)


@dataclass
class ScorerConfig:
    """Headline policy. Both policies are always computed; this is not part of a cell."""

    policy: Policy = aside()
    ep_min_calls: int = aside()
    # EP: calls of the dead tool before a report counts as correct.
    stuck_after: int = aside()
    # One call with one answer so often in a row is stuck; a report counts it anew from the log.

    def __post_init__(self) -> None:
        check_at_least("scorer.ep_min_calls", self.ep_min_calls, 1)
        check_at_least("scorer.stuck_after", self.stuck_after, 2)


@dataclass
class EngineConfig:
    """How tokens are evaluated. Everything here can move the last bit of a logit."""

    kind: EngineKind = identity()
    n_ctx: int | None = identity()
    # Context length in tokens; null = what the suite needs at most.
    n_batch: int = identity()
    n_ubatch: int = identity()
    n_threads: int = identity()
    n_threads_batch: int = identity()
    n_gpu_layers: int = identity()
    # -1 = all layers where the build can offload.
    main_gpu: int = aside()
    split_mode: str = identity()
    # none, layer or row.
    flash_attn: bool = identity()
    type_k: str = identity()
    type_v: str = identity()
    swa_full: bool = identity()
    streams: int = identity()
    # Episodes decoded in lockstep.
    seed: int = identity()
    # Of the noise; explicit although greedy decoding has none.
    temperature: float = identity()
    # 0 = greedy decoding.
    top_k: int = identity()
    # Most likely tokens that stay; 0 = all. This and the next two as llama.cpp defines them.
    top_p: float = identity()
    # 1 = all tokens stay.
    min_p: float = identity()
    # 0 = all tokens stay.
    noise: Noise = identity()
    # Whether the presets of a model share the noise that tokens are drawn with.
    skill: dict[str, float] = identity()
    # Scripted engine only: probability per preset that an error is met with a retry.
    server: ServerConfig = identity()
    # engine=openai only.
    workers: int = aside()
    # Processes that play tasks of one cell group side by side, in process only; 0 (auto) = as many as cores ÷
    # threads and memory allow on a CPU, one on a GPU. The bytes are those of one worker.
    gpus: list[str] = aside()
    # Devices dealt out one to each process that loads a model (joblib); empty = whatever the process sees.

    def __post_init__(self) -> None:
        for key, low in (
            ("n_batch", 1),
            ("n_ubatch", 1),
            ("n_threads", 1),
            ("n_threads_batch", 1),
            ("streams", 1),
        ):
            check_at_least(f"engine.{key}", getattr(self, key), low)
        check_at_least("engine.workers", self.workers, 0)
        self._check_sampling()
        if self.workers > 1 and self.streams > 1:
            raise ConfigError(
                f"engine.workers={self.workers} and engine.streams={self.streams} exclude each other",
                hint="workers play one episode at a time each; leave one of them at 1",
            )
        if self.n_ctx is not None:
            check_at_least("engine.n_ctx", self.n_ctx, 64)
        if self.n_ubatch > self.n_batch:
            raise ConfigError(f"engine.n_ubatch={self.n_ubatch} is larger than engine.n_batch={self.n_batch}")
        if self.streams > min(MAX_STREAMS, self.n_ubatch):
            raise ConfigError(
                f"engine.streams={self.streams} is too large",
                hint=f"at most {MAX_STREAMS}, and no more than engine.n_ubatch={self.n_ubatch}: "
                "a token of each stream has to fit into one batch",
            )
        check_among("engine.split_mode", self.split_mode, ("none", "layer", "row"))

    def _check_sampling(self) -> None:
        check_at_least("engine.top_k", self.top_k, 0)
        for key, low, high in (("temperature", 0.0, 100.0), ("top_p", 0.0, 1.0), ("min_p", 0.0, 1.0)):
            value = getattr(self, key)
            if not low <= value <= high or (key == "top_p" and value == 0):
                words = "above 0 and at most 1" if key == "top_p" else f"from {low:g} to {high:g}"
                raise ConfigError(f"engine.{key}={value:g} is not possible", hint=f"use a number {words}")
        if self.temperature == 0:
            # Greedy decoding: one cell, whatever filters say.
            self.top_k, self.top_p, self.min_p, self.noise = 0, 1.0, 0.0, Noise.shared
        elif self.kind is EngineKind.scripted:
            raise ConfigError(
                f"engine.temperature={self.temperature:g}: a scripted agent has no logits to draw from",
                hint="engine=llama_cpp, or engine=openai for a server that samples",
            )
        elif self.kind is EngineKind.openai:
            # A server draws with noise of its own.
            self.noise = Noise.own


@dataclass
class CellConfig:
    """One cell, fully resolved."""

    mode: Mode = aside()
    model: ModelConfig = identity()
    quant: QuantConfig = identity()
    prompt: PromptConfig = identity()
    fault: FaultConfig = identity()
    suite: SuiteConfig = identity()
    executor: ExecutorConfig = identity()
    scorer: ScorerConfig = aside()
    engine: EngineConfig = identity()
    tracking: TrackingConfig = aside()
    report: ReportConfig = aside()
    registration: RegistrationConfig = aside()
    trial: int = identity()
    # Repetition, 0 for the first.
    walk: list[FaultKind] = aside()
    # Fault kinds played in one walk with this cell's clean pass; set by the sweeper.
    sweep: str | None = aside()
    # Id of the sweep; set by the sweeper.
    exclude: list[dict[str, str]] = aside()
    # Combinations of group choices that a grid leaves out.
