"""The ledger world: customers, accounts, invoices, payments and refunds. Its tools read and write.

Read `tools.py` (the world and what its calls do), then `tasks.py` (how suites are drawn).
"""

from qfr.world.ledger.tasks import FAMILIES as FAMILIES
from qfr.world.ledger.tasks import of_suite as of_suite
from qfr.world.ledger.tools import NAME as NAME
from qfr.world.ledger.tools import LedgerWorld as LedgerWorld
