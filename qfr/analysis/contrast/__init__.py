"""Cells set against each other: `contrasts` (level A minus level B), what a difference is made of,
families of tests, groups, ladders, interactions, rankings, and the papers' ablations, agreement and
repair.
"""
