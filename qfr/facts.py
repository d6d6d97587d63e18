"""What a run says about itself: the short parameters, ids and provenance of one cell.

Written by the front door, stored by `tracking` as MLflow params and `qfr.` tags, read back by `analysis`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CellFacts:
    """One cell as it ran (or, before it ran, as it was planned: then the measured fields are empty)."""

    # --- short parameters -------------------------------------------------------------------------
    model: str
    quant: str
    # llama.cpp's preset name, upper case.
    prompt: str
    fault: str
    suite: str
    executor: str
    gate: str
    trial: int

    # --- ids ----------------------------------------------------------------------------------------
    design_id: str
    # "d-" + 16 hex digits: what can be planned anywhere.
    cell_id: str
    # "c-" + 16 hex digits: what ran.
    clean_id: str
    # cell_id of the clean run of this cell (equal to cell_id for fault=none).
    sweep: str
    # Id of the sweep that ran it ("s-…"); empty for a single cell.
    identity_version: int
    schema_version: int
    scorer_version: int

    # --- treatment ----------------------------------------------------------------------------------
    prompt_sha256: str
    suite_sha256: str
    template_sha256: str
    executor_sha256: str
    # Over executor and budgets.
    fault_sha256: str
    # Over the fault's kind, code and message.
    step_budget: int
    error_budget: int

    # --- model file ---------------------------------------------------------------------------------
    model_sha256: str
    model_bytes: int
    model_source: str
    # path, folder, package, cache, download, derived or requantized.
    model_revision: str
    # Revision in the repository, empty where none applies.
    imatrix: str
    # The GGUF's quantize.imatrix.file, empty for a static quantization.
    tensor_types: str
    # "F32:61 Q4_K:120 Q6_K:30".
    reference_agent: bool

    # --- engine -------------------------------------------------------------------------------------
    engine: str
    llama_commit: str
    llama_commit_source: str
    library_version: str
    library_sha256: str
    device: str
    offloaded_layers: int
    n_ctx: int
    n_batch: int
    n_threads: int
    n_threads_batch: int
    streams: int
    rewind: bool

    # --- where and from which code ------------------------------------------------------------------
    git_commit: str
    git_dirty: bool
    qfr_version: str
    host: str
    config: str
    # The resolved configuration as canonical JSON.

    # --- what came later: a run without it reads as empty -------------------------------------------
    code_sha256: str = ""
    # Over every Python file of qfr, wherever it is installed.
    registration: str = ""
    # Id of the registration that it ran under ("r-" and 16 hex digits); empty = exploratory.
    deviation: str = ""
    # Under a registration: why and in which keys the cell is not the frozen one, as canonical JSON.

    @property
    def name(self) -> str:
        """The run's name: `llama q8_0 P0 et`."""
        return f"{self.model} {self.quant.lower()} {self.prompt} {self.fault}"


@dataclass(frozen=True)
class Work:
    """What the engine did for one walk (a clean pass and its fault episodes)."""

    tokens_evaluated: int
    tokens_generated: int
    tokens_tree: int
    # Tokens of the distinct nodes of the segment tree.
    tokens_trie: int
    # The finer floor: tokens of the token trie.
    tokens_fresh: int
    # What evaluating every episode afresh would have cost.
    prefill_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    engine_seconds: float
    wall_seconds: float
    peak_memory_bytes: int | None
    # Largest resident size of the engine's process so far; None where there is none.

    @property
    def segment_ratio(self) -> float | None:
        """Tokens evaluated over tokens of the segment tree; 1.0 for an uninterrupted walk."""
        return self.tokens_evaluated / self.tokens_tree if self.tokens_tree else None
