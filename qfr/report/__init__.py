"""What a reader sees: a terminal table, tables as files, and one HTML page that opens without a network.

- `content/`: what a report holds, computed once; `rows` makes the one table of results that all views show
- `tables/`: tables of plain strings over these rows, declared by `specs`
- `words`, `notices`: the answer and the warnings in plain words
- `contrastfigures`, `processfigures`, `charts`: figures as plain data; `figures/`: how they are drawn (the
  only room that imports plotly)
- `sections`, `layout`, `page`: the HTML page
- `console`, `logs` (imported logs), `markdown`, `export`: the terminal, a pull request, files
"""
