"""The recipe of the reference agents: needs the source tree and the extra ``[train]``.

`python tools/reference/train.py --arch llama --seed 1 --out DIR` trains one. Read `corpus` (what it sees),
`demonstration` and `policy` (what it should do), `train`, `dial` (what quantization costs it), `export` (to
GGUF), `verify` and `quality` (what it does).
"""
