"""`vlmcli` and `python -m vlmcli`: what libraries read once, when they are loaded, is settled here.

OpenMP threads that wait by spinning take the processor from page workers and from everybody else's
jobs: on two busy cores that made a page three times as expensive. And oneDNN makes a kernel for
every shape of half-sized matrices and keeps a thousand of them, torch as many more: 50 pages in
bfloat16 grew to 1.1 GiB. A step has a dozen shapes, and with room for two dozen it is no slower.
"""

import os

from vlmcli.cli import app

_SETTINGS = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "24",
    "LRU_CACHE_CAPACITY": "24",
}


def main() -> None:
    """Entry point. Does not return."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    app.main()


if __name__ == "__main__":
    main()
