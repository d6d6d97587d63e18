"""Commands that check: `audit`, `doctor`, `verify`, `world`, each with what it tries."""
