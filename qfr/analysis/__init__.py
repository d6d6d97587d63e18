"""From finished cells to targets, contrasts and summaries: pure functions over tables in memory.

- `targets`: one row per task (`TaskTable`) and the evaluation targets clean, own, matched, full, S*, ungated
- `pairing`, `levels`: which cells may be contrasted, and which level of an axis counts as the higher one
- `contrast/`: A minus B with interval and exact tests, what a difference is made of, groups, ladders,
rankings - `decisions/`: what may be said of a contrast, decided once; the sequential gate - `diagnostics/`:
the process (Jang 2026) - `results`, `rows`: the one table of results - `cells`, `frames`, `process`:
summaries of cells, tables from logs, how episodes ended and what they cost - `trials`, `imported`: logs of
other programs as task tables, and two of them against each other - `tablefile`: the JSON format
of `qfr contrast`; `published`: published results
"""
