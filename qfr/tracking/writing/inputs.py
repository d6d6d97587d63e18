"""GGUF files and suites on MLflow's own pages: a LoggedModel per GGUF, a dataset per suite."""

from __future__ import annotations

import re

from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput, LoggedModelStatus

from qfr.canonical import canonical
from qfr.facts import CellFacts
from qfr.tracking.store import Store, hold_lock


def log_inputs(store: Store, run_id: str, facts: CellFacts) -> None:
    """Link the run to its model file (an imported log has none) and its suite; a repetition adds nothing."""
    dataset = Dataset(
        name=facts.suite,
        # MLflow allows 36 characters; the whole digest is the tag qfr.suite_sha256.
        digest=facts.suite_sha256[:32],
        source_type="qfr",
        source=canonical({"suite": facts.suite, "sha256": facts.suite_sha256}),
    )
    store.client.log_inputs(
        run_id,
        datasets=[DatasetInput(dataset, tags=[InputTag("mlflow.data.context", "evaluation")])],
        models=[LoggedModelInput(_logged_model(store, facts))] if facts.model_sha256 else [],
    )


def _logged_model(store: Store, facts: CellFacts) -> str:
    """Id of the GGUF's LoggedModel in this experiment, made when missing."""
    with hold_lock(store.root, f"model-{facts.model_sha256[:16]}"):
        found = store.client.search_logged_models(
            [store.experiment_id],
            filter_string=f"tags.`qfr.model_sha256` = '{facts.model_sha256}'",
            max_results=1,
        )
        if found:
            return str(found[0].model_id)
        model = store.client.create_logged_model(
            store.experiment_id,
            name=re.sub(r"[^\w+-]", "-", f"{facts.model} {facts.quant}"),
            model_type="gguf",
            params={"model": facts.model, "quant": facts.quant, "bytes": str(facts.model_bytes)},
            tags={
                "qfr.model_sha256": facts.model_sha256,
                "qfr.model_source": facts.model_source,
                "qfr.model_revision": facts.model_revision,
                "qfr.imatrix": facts.imatrix,
                "qfr.tensor_types": facts.tensor_types,
                "qfr.reference_agent": str(facts.reference_agent).lower(),
            },
        )
        store.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        return str(model.model_id)
