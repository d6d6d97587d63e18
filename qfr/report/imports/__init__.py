"""The parts of a page that speak of imported logs: `logs` (what is known of each), `pairs`, `process`,
`page`.
"""
