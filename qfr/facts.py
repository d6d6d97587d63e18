"""What a run says about itself: the short parameters, ids and provenance of one cell.

Written by the front door, stored by `tracking` as MLflow params and `qfr.` tags, read back by `analysis`.
"""

from __future__ import annotations

from dataclasses import dataclass

from qfr.shards import shard_of


@dataclass(frozen=True)
class CellFacts:
    """One cell as it ran (or, before it ran, as it was planned: then the measured fields are empty)."""

    # --- short parameters -------------------------------------------------------------------------
    model: str
    # Short name of the model.
    quant: str
    # llama.cpp's preset name, upper case.
    prompt: str
    # Name of the system prompt.
    fault: str
    # Kind of fault; none is the clean pass.
    suite: str
    # Name of the suite of tasks.
    executor: str
    # How turns that are not strict are treated: tolerant or strict_feedback.
    gate: str
    # On which tasks fault episodes run: certified, or none (on all).
    trial: int
    # Repetition of the cell, 0 for the first.

    # --- ids ----------------------------------------------------------------------------------------
    design_id: str
    # "d-" + 16 hex digits: what can be planned anywhere.
    cell_id: str
    # "c-" + 16 hex digits: what ran. A shard adds its part: "c-…@3of8" (its episodes carry the cell's id).
    clean_id: str
    # cell_id of the clean run of this cell (equal to cell_id for fault=none).
    sweep: str
    # Id of the sweep that ran it ("s-…"); empty for a single cell.
    identity_version: int
    # Of the rules that make the ids.
    schema_version: int
    # Of the log's records.
    scorer_version: int
    # Of the scores that were logged with the cell.

    # --- treatment ----------------------------------------------------------------------------------
    prompt_sha256: str
    # Of the prompt's exact bytes.
    suite_sha256: str
    # Of the suite as JSON.
    template_sha256: str
    # Of the chat template that rendered the transcript.
    executor_sha256: str
    # Over executor and budgets.
    fault_sha256: str
    # Over the fault's kind and the keys that this kind reads.
    step_budget: int
    # Model turns per episode at most.
    error_budget: int
    # Failed calls of the agent per episode at most.

    # --- model file ---------------------------------------------------------------------------------
    model_sha256: str
    # Of the GGUF file.
    model_bytes: int
    # Size of the GGUF file.
    model_source: str
    # path, folder, package, cache, download, derived or requantized.
    model_revision: str
    # Revision in the repository, empty where none applies.
    imatrix: str
    # The GGUF's quantize.imatrix.file, empty for a static quantization.
    tensor_types: str
    # "F32:61 Q4_K:120 Q6_K:30".
    reference_agent: bool
    # A small agent of our own, sensitive by design and no evidence about another model.

    # --- engine -------------------------------------------------------------------------------------
    engine: str
    # llama_cpp, scripted or openai (a served model).
    llama_commit: str
    # Commit of llama.cpp; empty without it.
    llama_commit_source: str
    # Where the commit was read: the library itself, the table of releases, or none.
    library_version: str
    # Of llama-cpp-python; empty without it.
    library_sha256: str
    # Of the loaded library's file.
    device: str
    # What evaluated: cpu, or the name of the accelerator.
    offloaded_layers: int
    # Layers of the model that the device held.
    n_ctx: int
    # Context length in tokens.
    n_batch: int
    # Tokens of one batch at most.
    n_threads: int
    # Threads while generating.
    n_threads_batch: int
    # Threads while evaluating prompts.
    streams: int
    # Episodes decoded in lockstep.
    rewind: bool
    # Forks were reached by rewinding the cache; false = each episode was evaluated afresh.

    # --- where and from which code ------------------------------------------------------------------
    git_commit: str
    # Of the checkout that ran; empty for an installed package.
    git_dirty: bool
    # The checkout had changes that were not committed.
    qfr_version: str
    # That ran it.
    host: str
    # Name of the machine (machine-1, machine-2 … in an imported archive).
    config: str
    # The resolved configuration as canonical JSON.

    # --- what came later: a run without it reads as empty -------------------------------------------
    code_sha256: str = ""
    # Over every Python file of qfr, wherever it is installed.
    registration: str = ""
    # Id of the registration that it ran under ("r-" and 16 hex digits); empty = exploratory.
    deviation: str = ""
    # Under a registration: why and in which keys the cell is not the frozen one, as canonical JSON.
    server: str = ""
    # A served model as the server tells it (address without credentials, name, build, sampling, template),
    # as canonical JSON; empty for engines in process. Such a cell has no token ids, margins or logits.
    repeat: str = ""
    # A served model: whether a repeated episode gave the same text; "not bit-reproducible" unless it did.
    exactness: str = ""
    # What a trial of forks against fresh evaluation showed on this combination of file, build and device.

    @property
    def name(self) -> str:
        """The run's name: `llama q8_0 P0 et`; of a shard `llama q8_0 P0 3/8 et`."""
        shard = shard_of(self.cell_id)
        part = "" if shard is None else f" {shard}"
        return f"{self.model} {self.quant.lower()} {self.prompt}{part} {self.fault}"


@dataclass(frozen=True)
class Work:
    """What the engine did for one walk (a clean pass and its fault episodes)."""

    tokens_evaluated: int
    # Tokens that went through the model.
    tokens_generated: int
    # Tokens that it wrote.
    tokens_tree: int
    # Tokens of the distinct nodes of the segment tree.
    tokens_trie: int
    # The finer floor: tokens of the token trie.
    tokens_fresh: int
    # What evaluating every episode afresh would have cost.
    prefill_tokens_per_second: float | None
    # Tokens evaluated in segments, per second of it; None without any.
    decode_tokens_per_second: float | None
    # Tokens evaluated one by one, per second of it; None without any.
    engine_seconds: float
    # Spent evaluating.
    wall_seconds: float
    # From the walk's start to its end.
    peak_memory_bytes: int | None
    # Largest resident size of the engine's process so far; None where there is none.
    device_memory_bytes: int | None = None
    # GPU memory of the engine's process at the walk's end; None without a GPU or NVIDIA's tool.

    @property
    def segment_ratio(self) -> float | None:
        """Tokens evaluated over tokens of the segment tree; 1.0 for an uninterrupted walk."""
        return self.tokens_evaluated / self.tokens_tree if self.tokens_tree else None
