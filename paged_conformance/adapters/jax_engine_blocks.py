"""jax-engine's block manager as a target."""

from paged_conformance.adapters.oracle_blocks import Make

make = Make("jax_engine.core")
make_without_cache = Make("jax_engine.core", cache=False)
