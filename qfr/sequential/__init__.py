"""`qfr try`: from GGUF files to one named file. In the order of reading: `files` (headers, families, arms),
`waves` (one wave of tasks of one arm, through the ordinary journals and MLflow), `sequence` (which arm is
tested when, and when it stops), `looks` (looks written and drawn), `words` (the answer).
"""
