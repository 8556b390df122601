"""The process of an engine's runners: `python -m jax_engine.engine.runner_main ADDRESS`.

`build.remote_runners` starts it. It beats before it has imported JAX.
"""

import sys
from collections.abc import Sequence
from typing import Any

from jax_engine.processes.runner_process import serve
from jax_engine.step import Runner


def build(settings: Any) -> tuple[Any, Sequence[Runner]]:
    """The runners of an engine with these settings, and what the driver gets to know of them."""
    from jax_engine.engine.build import told_runners

    return told_runners(settings)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], build))
