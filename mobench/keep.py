"""`python -m mobench.keep`: keep rows with the project; see `mobench.cli.keep`."""

import sys

from mobench.cli.keep import main

if __name__ == "__main__":
    sys.exit(main())
