"""The page's tables: `specs` says what a declarative table is, `views` what every view shows, `formats`
how numbers are written; then one module a table.
"""
