"""From files to one named file: `files` reads and groups them, `plan` says how they are played and what that
takes, `waves` plays them wave by wave through the ordinary journals and the MLflow store, `sequence` decides,
`answer` says it, `looks` keeps it.
"""
