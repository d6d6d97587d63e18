"""After the last job: the closing table (`summary`), the report (`reporting`), and the registrations that its
cells ran under (`registrations`).
"""
