"""The reference agents: `models/` holds the F16 files that `model=ref_llama`, `model=ref_qwen` and
`model=ref_hermes` run.

They are two small transformers trained on the project's own protocol. Their recipe is no part of the package:
it stands in `tools/reference/` of the source tree.
"""
