"""What a reader sees: a terminal table, tables as files, and one HTML page that opens without a network.

- `build`: everything a report shows, computed once
- `words`: the answer and the warnings in plain words
- `tables`: analysis results as pandas tables with units in the column names
- `console`: tables on the terminal
- `imported`, `imported_pairs`: logs of other programs on the terminal
- `figures`: Figure 1 of Hu 2026 for each model and policy (the only room that imports plotly)
- `page`: the HTML page
- `export`: the files
"""
