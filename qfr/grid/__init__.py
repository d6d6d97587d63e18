"""Composed configurations to a checked, planned grid. No model is loaded and nothing is downloaded.

Read `grid` (exclude, validate, fold, group), `checks` (one cell), `design` (its ids), `files` (which GGUF
it will use), then `plan` (what the grid comes to) and `show` (that plan on the terminal). `report_checks`
tries beforehand what the closing report is asked for.
"""
