"""What answered: library, model file, device; recorded with every run."""

from __future__ import annotations

from qfr.engine.base import EngineInfo
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama.library import facts_here
from qfr.engine.llama.model import LoadedModel
from qfr.engine.llama.transcript import Layout


def engine_info(model: LoadedModel, file: ModelFile, layout: Layout, *, rewind: bool) -> EngineInfo:
    """Provenance of a loaded model."""
    library = facts_here()
    layers, shape = model.offloaded(), layout.shape
    return EngineInfo(
        kind="llama_cpp",
        library_version=library.version,
        llama_commit=library.commit,
        llama_commit_source=library.commit_source,
        library_sha256=library.sha256,
        system_info=library.system_info,
        device=", ".join(library.devices) if layers else "cpu",
        offloaded_layers=layers,
        n_ctx=model.n_ctx,
        model_sha256=file.sha256,
        model_bytes=file.bytes,
        n_params=file.facts.n_params,
        tensor_types=file.facts.tensor_types,
        metadata=file.facts.metadata,
        template_sha256=shape.sha256,
        system_role=shape.system_role,
        rewind=rewind,
        thinking=shape.thinking,
        rewrites=shape.rewrites,
        alters=shape.alters,
        thinks=shape.thinks,
        transcript=layout.described(),
    )
