"""The reference agents: two small transformers trained on the project's own protocol, and their recipe.

`models/` holds the F16 files that `model=ref_llama` and `model=ref_qwen` run. The recipe (`train`, `export`,
`verify`) needs the extra ``[train]``; nothing else in the project imports PyTorch.
"""
