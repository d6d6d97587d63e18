"""Registration: what was planned, frozen as one canonical document before it runs.

Pure: no files, no clock, no store. `record` is the document, `reading` its bytes, `differences` what a run
changes, `standing` what of a report was planned, `findings` and `checking` the verification, `markdown` the
rendering for people.
"""
