"""From finished cells to targets, contrasts and summaries: pure functions over tables in memory.

- `targets`: one row per task (`TaskTable`) and the evaluation targets clean, own, matched, full, S*, ungated
- `levels`: which level of an axis counts as the higher one
- `pairing`: which cells may be contrasted, and what keeps the others apart
- `contrasts`: A minus B with interval and exact tests
- `decomposition`: what a full-pipeline difference is made of, and what undelivered faults could change
- `cells`: one summary per cell and policy
- `groups`: named groups of presets, and differences of differences
- `overall`: presets averaged over their prompts
- `frames`: cells as the tracking store returns them, turned into task tables
- `process`: how episodes ended, error channels, fault states
- `trials`, `imported`: logs of other programs as task tables, and two of them against each other
- `tablefile`: the JSON format of `qfr contrast`
"""
