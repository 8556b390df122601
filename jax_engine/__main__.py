"""`python -m jax_engine` is `jax-engine`."""

import sys

from jax_engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
