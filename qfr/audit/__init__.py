"""Finished cells played again and compared with what was logged: `recorded_cell` reads a cell's configuration
back from its run, `replay` plays it, `looking` has another file read it (teacher forcing). Nothing is
written to the store.
"""
