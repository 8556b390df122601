"""`python -m paged_conformance`: the same as the command `paged-conformance`."""

import sys

from paged_conformance.command import main

if __name__ == "__main__":
    sys.exit(main())
