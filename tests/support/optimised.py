"""How XLA compiles for users. Tests compile without optimisation, which is quicker, and rounds less
by the shape of an array.
"""

from typing import Any

OPTIMISED: dict[str, Any] = {"xla_backend_optimization_level": 3}
"""For `jax.jit(compiler_options=...)`."""
