"""A damaged entry of the persistent compilation cache is compiled again, not fatal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture
def cache_folder(tmp_path):
    """JAX's cache in a folder of this test, for programs of any size."""
    from jax.experimental.compilation_cache import compilation_cache

    names = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in names.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.parametrize("damage", [b"", b"not an executable"], ids=["empty", "garbage"])
def test_a_damaged_entry_is_compiled_again(cache_folder, damage: bytes) -> None:
    def program(x):
        return jnp.cumsum(x * 3) + 1

    x = jnp.arange(5)
    expected = np.cumsum(np.arange(5) * 3) + 1
    assert np.array_equal(jax.jit(program)(x), expected)
    entries = [path for path in cache_folder.iterdir() if path.name.endswith("-cache")]
    assert entries
    for entry in entries:
        entry.write_bytes(damage)
    jax.clear_caches()
    with pytest.warns(UserWarning, match="[Cc]ache"):
        assert np.array_equal(jax.jit(program)(x), expected)
