"""`python -m broker_core` is the command `rmq`."""

import sys

from broker_core.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
