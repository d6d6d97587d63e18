"""`python -m qfr` is the `qfr` command."""

from qfr.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
