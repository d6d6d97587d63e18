"""One cell group, a clean pass and its fault cells, from its journal to complete MLflow runs.

Read `job` (what a launcher runs), `cell_group` (its cells one after the other), `cell_run` (a cell before
it is played), `episodes` (how its episodes are played), `recording` (what becomes of a finished cell).
`engine_cache` keeps one model loaded; `exactness`, `repeats`, `gpus` and `speed` find out once what this
machine does; `hours` foretells the time; `sharing` and `waiting` deal with other processes and a store
that is away; `run_facts` gathers what a run says of itself.
"""
