"""What a reader sees: a terminal table, tables as files, and one HTML page that opens without a network.

- `content/`: what a report holds, computed once; `rows` makes the one table of results that all views show
- `tables/`: tables of plain strings over these rows, declared by `specs`
- `imports/`: the parts that speak of imported logs
- `words`, `notices`: the answer and the warnings in plain words
- `files`: the table of results as CSV, Parquet, JSON and MLflow metrics
- `contrastfigures`, `processfigures`, `charts`: figures as plain data; `figures/`: how they are drawn (the
only room that imports plotly) - `sections`, `layout`, `page`: the HTML page - `console`, `markdown`,
`export`, `images`: the terminal, a pull request, files
"""
