"""Runs of the store back as cells and tables: `search` finds them, `cells` and `tables` read one, `joining`
puts a clean pass beside its fault cells, `reader` reads all that a report needs.
"""
