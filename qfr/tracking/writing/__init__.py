"""Cells and sweeps into the store: `writer` (one cell), `outbox` (a finished cell that could not be uploaded
yet), `sweep` and `sweep_runs` (the sweep's own run and its list of cells), `claims` and `owner` (who
plays what), `transfer` (whole runs between stores), `rescoring` (scores added to a run).
"""
