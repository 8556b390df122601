"""The persistent compilation cache: damaged entries, and folders that cannot be written."""

import errno
import hashlib
import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib.version import __version__ as jaxlib_version

from jax_engine.worker import compilation_cache as module
from jax_engine.worker.compilation_cache import enable_compilation_cache

NAMES = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


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
@pytest.mark.slow
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


@pytest.fixture
def our_cache(tmp_path, monkeypatch):
    """This package's cache is in a folder of this test, and JAX is as it is before an engine."""
    from jax.experimental.compilation_cache import compilation_cache

    before = {name: getattr(jax.config, name) for name in NAMES}
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("JAX_ENGINE_CACHE", str(tmp_path))
    compilation_cache.reset_cache()
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def refuse(*args, **kwargs):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_read_only_folder_is_read(our_cache, monkeypatch, caplog) -> None:
    from jax.experimental.compilation_cache import compilation_cache

    def program(x):
        return jnp.cumsum(x * 5) + 1

    folder = enable_compilation_cache()
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    x = jnp.arange(5)
    jax.jit(program)(x)
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    jax.clear_caches()
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    hits = []
    jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
    assert enable_compilation_cache() == folder
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(program)(x)
    assert "/jax/compilation_cache/cache_hits" in hits
    assert jax.config.jax_persistent_cache_min_compile_time_secs == float("inf")
    assert caplog.text.count("cannot be kept") == 1 and "Read-only file system" in caplog.text


def test_a_folder_that_cannot_be_made_is_done_without(our_cache, monkeypatch, caplog) -> None:
    (our_cache / "file").write_text("")
    monkeypatch.setenv("JAX_ENGINE_CACHE", str(our_cache / "file"))
    assert enable_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None
    assert "Not a directory" in caplog.text


def test_programs_are_kept_by_version_and_machine(our_cache, monkeypatch) -> None:
    """Whatever takes longer than a fifth of a second to compile, of any size."""
    monkeypatch.setattr("platform.machine", lambda: "one")
    monkeypatch.setattr("platform.processor", lambda: "two")
    cpuinfo = our_cache / "cpuinfo"
    monkeypatch.setattr(module, "Path", lambda path: cpuinfo)

    def key(text: str) -> str:
        return f"{jaxlib_version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    folder = enable_compilation_cache()
    assert folder == our_cache / "xla" / key("onetwo") and folder.is_dir()
    assert [getattr(jax.config, name) for name in NAMES] == [str(folder), 0.2]
    cpuinfo.write_text("model name: b\nflags: c\nFeatures: a\nmodel name: b\nbogomips: 7\n")
    jax.config.update("jax_compilation_cache_dir", None)
    folder = enable_compilation_cache()
    assert folder == our_cache / "xla" / key("onetwoFeatures: aflags: cmodel name: b")


@pytest.mark.parametrize("chosen", ["by JAX's option", "by the environment", "off"])
def test_what_the_user_has_chosen_stays(chosen: str, our_cache, monkeypatch) -> None:
    options = ("jax_enable_compilation_cache", *NAMES)
    enabled = jax.config.jax_enable_compilation_cache
    if chosen == "by JAX's option":
        jax.config.update("jax_compilation_cache_dir", "/nowhere")
    elif chosen == "by the environment":
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    else:
        jax.config.update("jax_enable_compilation_cache", False)
    before = [getattr(jax.config, name) for name in options]
    try:
        assert enable_compilation_cache() is None
        assert [getattr(jax.config, name) for name in options] == before
        assert not list(our_cache.iterdir())
    finally:
        jax.config.update("jax_enable_compilation_cache", enabled)
