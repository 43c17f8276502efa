"""`vlmcli` and `python -m vlmcli`: what libraries read once, when they are loaded, is settled here.

OpenMP threads that wait by spinning take the processor from page workers and from everybody else's
jobs: on two busy cores that made a page three times as expensive.
"""

import os

from vlmcli.cli import app


def main() -> None:
    """Entry point. Does not return."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app.main()


if __name__ == "__main__":
    main()
