"""The world `bfcl_multi_turn`: tasks, tools and checks of BFCL v4, read from the installed package bfcl-eval.

Read `package.py` (what is read, and how its classes are made deterministic), `live.py` (a task's objects),
then `tasks.py` (gold paths and fault sites) and `world.py`. Nothing of the benchmark is copied here.
"""

from qfr.world.bfcl.package import FAMILIES as FAMILIES
from qfr.world.bfcl.package import NAME as NAME
from qfr.world.bfcl.world import BfclWorld as BfclWorld
from qfr.world.bfcl.world import of_suite as of_suite
