"""What a reader sees: a terminal table, tables as files, and one HTML page that opens without a network.

- `build`: everything a report shows, computed once
- `material`, `gather`: calls, costs and transcripts, read from the tracking store
- `ranking`, `words`, `notices`: the answer and the warnings in plain words
- `tables`: analysis results as pandas tables with units in the column names
- `views`, `cellviews`, `contrasttables`, `processtables`: tables of plain strings, without markup
- `diagnosed`, `processfigures`: diagnostics of the process (Jang 2026)
- `contrastfigures`: decomposition, prompt by preset, ladder
- `outcomes`, `transcripts`: how every episode ended, and the texts that the page's viewer shows
- `published`, `replication`: published results beside ours
- `imported`, `imported_pairs`: logs of other programs on the terminal
- `charts`: figures as plain data; `figures`: how they are drawn (the only room that imports plotly)
- `sections`, `page`: the HTML page
- `console`, `markdown`, `export`, `images`: the terminal, a pull request, files
"""
