"""Front door: `python run.py [GROUP=NAME ...]` runs grids; `qfr run` is the same."""

from qfr.front.main import main

if __name__ == "__main__":
    raise SystemExit(main())
