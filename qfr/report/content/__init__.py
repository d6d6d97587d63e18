"""What a report holds before it is shown: `gather` reads it, `build` computes it (`diagnosed`, `imported`,
`outcomes`, `transcripts`, `registration_status`), `rows` makes the one table of results, `explain` takes
a row apart.
"""
