"""Logs of other tools, read into the same records."""
