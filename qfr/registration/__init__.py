"""Registration: what was planned, frozen as one canonical document before it runs, and what holds of it
later.

Read `record` (every noun of the document) and `record_reader` (the document back from its bytes), then by
stage: `freeze` and `planned_analysis` (what of a grid is frozen), `register` (mode=register), `store`
(where it is kept), `run_under` (every cell compared with the record before it runs), `status` (planned,
deviated, exploratory), `verify` with `copies`, `checks`, `evidence` and `findings` (`qfr verify`).
`markdown` and `markup` render it, `differences` and `label` are shared, `source_code` is the digest of
the code that runs.
"""
