"""`python -m xtx.cli`: the command `xtx`, where it is not installed."""

import sys

from xtx.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
