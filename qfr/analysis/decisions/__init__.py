"""What may be said of a contrast, decided once: `verdict` (the rule and its words), `bound` (the gate's
bound), `cells` and `files` (what `compare` and `pick` are given), `pick` (one preset of several).
"""
