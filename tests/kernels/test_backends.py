"""Which backend runs a call: by name, in order of preference, by device, by what it lacks."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

import pallas_kernels.metadata as metadata
from pallas_kernels import MetadataError, backends, device, make_metadata, paged_attention
from pallas_kernels.backends import choose_backend, choose_for_call
from pallas_kernels.call import Call, Options

CALL = Call(
    q=jnp.zeros((3, 4, 80)),
    kv_cache=jnp.zeros((1, 2, 5, 2, 4, 80)),
    block_tables=jnp.zeros((2, 6), jnp.int32),
    context_lens=jnp.ones(2, jnp.int32),
    query_start_loc=jnp.arange(3),
    layer=jnp.int32(0),
)
OPTIONS = Options(1.0)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretends another device, and backends that lack what `lacks` says; "mosaic" no 80."""

    def pretend(platform: str, sm: str = "", **lacks: str) -> None:
        found = SimpleNamespace(
            platform=platform, device_kind=f"{platform} {sm}", compute_capability=sm
        )
        monkeypatch.setattr(device, "target_device", lambda: found)
        monkeypatch.setattr(backends, "target_device", lambda: found)

        def implementation(name: str) -> Any:
            if lacks.get(name) == "ImportError":
                raise ImportError(f"no {name} in this JAX")
            return SimpleNamespace(
                missing=lambda call, options: lacks.get(name),
                make_metadata=lambda *arrays, decode_only: None,
            )

        monkeypatch.setattr(backends, "implementation", implementation)
        monkeypatch.setattr(metadata, "implementation", implementation)

    return pretend


def test_steps_that_only_decode_prefer_triton_and_others_mosaic(on: Any) -> None:
    arrays = CALL.block_tables, CALL.context_lens, CALL.query_start_loc
    on("gpu", "9.0")
    assert make_metadata(*arrays, 3, decode_only=True).backend == "triton"
    assert make_metadata(*arrays, 3).backend == "mosaic"
    assert make_metadata(*arrays, 3, decode_only=True, backend="mosaic").backend == "mosaic"
    on("gpu", "9.0", triton=NO_80)
    call = CALL.q, CALL.kv_cache
    assert make_metadata(*arrays, 3, decode_only=True, call=call).backend == "mosaic"
    on("cpu")
    assert make_metadata(*arrays, 3, decode_only=True).backend == "numba"


@pytest.mark.parametrize("queries", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("cache", ["float8_e4m3fn", "int8"])
def test_a_backend_is_chosen_for_an_8_bit_cache_before_its_scales_are_there(
    queries: str, cache: str
) -> None:
    """The metadata of a step are made from shapes alone; JAX promotes no float8 to anything."""
    call = CALL._replace(q=CALL.q.astype(queries), kv_cache=CALL.kv_cache.astype(cache))
    lack = backends.implementation("triton").missing(call, OPTIONS)
    wanted = f"float32 queries on a cache of {cache}" if queries == "float32" else None
    assert lack == wanted


NO_80 = "head dimension 80 (a multiple of 64 is needed)"


@pytest.mark.parametrize(
    ("machine", "lacks", "backend", "chosen"),
    [
        (("gpu", "9.0"), {}, None, "mosaic"),
        (("gpu", "9.0"), {"mosaic": NO_80}, None, "triton"),
        (("gpu", "9.0"), {"mosaic": "ImportError"}, None, "triton"),
        (("gpu", "9.0"), {"mosaic": NO_80, "triton": NO_80}, None, "xla"),
        (("gpu", "10.0"), {}, None, "triton"),  # WGMMA is Hopper's alone
        (("gpu", "12.0"), {}, None, "triton"),
        (("gpu", "8.0"), {}, None, "triton"),
        (("gpu", "7.5"), {}, None, "xla"),
        (("gpu", "gfx942"), {}, None, "triton"),  # an MI300X
        (("gpu", "gfx942"), {"triton": NO_80}, None, "xla"),
        (("gpu", "gfx942"), {}, ("mosaic", "triton"), "triton"),
        (("gpu", "gfx942:sramecc+:xnack-"), {}, None, "triton"),
        (("gpu", "gfx950"), {}, None, "xla"),  # nobody compiled for the others
        (("gpu", "gfx1100"), {}, None, "xla"),
        (("tpu",), {}, None, "xla"),
        (("cpu",), {}, None, "numba"),
        (("cpu",), {"numba": "float64"}, None, "xla"),
        (("cpu",), {"numba": "ImportError"}, None, "xla"),
        (("cpu",), {}, "triton", "triton"),
        (("cpu",), {}, "mosaic", "mosaic"),
        (("cpu",), {}, ("mosaic", "triton", "xla"), "xla"),
        (("gpu", "9.0"), {}, ("triton", "mosaic"), "triton"),
        (("gpu", "9.0"), {"mosaic": NO_80}, ("mosaic", "xla"), "xla"),
    ],
)
def test_the_choice(on: Any, machine: Any, lacks: Any, backend: Any, chosen: str) -> None:
    on(*machine, **lacks)
    assert choose_for_call(backend, CALL, OPTIONS) == chosen


@pytest.mark.parametrize(
    ("machine", "lacks", "backend", "message"),
    [
        (
            ("gpu", "9.0"),
            {"mosaic": NO_80},
            "mosaic",
            r"'mosaic' lacks head dimension 80 \(.*\); 'triton' supports this call",
        ),
        (
            ("gpu", "8.6"),
            {},
            "mosaic",
            r"'mosaic' lacks a GPU of sm_90 or newer \(the device is sm_86\); 'triton' supports",
        ),
        (
            ("gpu", "10.0"),
            {},
            "mosaic",
            r"'mosaic' lacks instructions of sm_90 \(the device is sm_100\); 'triton' supports",
        ),
        (
            ("gpu", "gfx942"),
            {},
            "mosaic",
            r"'mosaic' lacks an NVIDIA GPU \(the device is gfx942\); 'triton' supports this call",
        ),
        (
            ("gpu", "gfx1100"),
            {},
            "triton",
            r"'triton' lacks an AMD GPU of gfx942 \(the device is gfx1100\); 'xla' supports",
        ),
        (("tpu",), {}, "numba", r"'numba' lacks a CPU \(the device is tpu.*'xla' supports"),
        (("tpu",), {}, "triton", r"'triton' lacks an NVIDIA GPU \(the device is tpu.*'xla' supp"),
        (("cpu",), {}, ("mosaic", "triton"), "'mosaic' lacks an NVIDIA GPU.*'triton' lacks an NV"),
        (("cpu",), {"triton": NO_80}, "triton", "'triton' lacks head dimension 80"),
        (("cpu",), {"mosaic": "ImportError"}, "mosaic", "'mosaic' lacks a module .no mosaic in"),
        (("gpu", "9.0"), {}, "cuda", "backend='cuda' does not exist; use one of mosaic, triton"),
        (("gpu", "9.0"), {}, ("xla", "cuda"), "does not exist"),
        (("gpu", "9.0"), {}, (), r"backend=\(\) does not exist"),
        (
            ("cpu",),
            {"xla": "a call", "numba": "a call"},
            None,
            "no other backend supports this call",
        ),
    ],
)
def test_what_cannot_run_is_refused(
    on: Any, machine: Any, lacks: Any, backend: Any, message: str
) -> None:
    on(*machine, **lacks)
    with pytest.raises(ValueError, match=message):
        choose_for_call(backend, CALL, OPTIONS)


@pytest.mark.parametrize(
    ("platform", "kind", "capability", "gfx", "width"),
    [
        ("gpu", "AMD Instinct MI300X", "gfx942", "gfx942", 64),
        ("gpu", "gfx942:sramecc+:xnack-", "gfx942", "gfx942", 64),
        ("gpu", "gfx942", "<unknown compute-capability>", "gfx942", 64),  # only described
        ("gpu", "AMD Radeon RX 7900 XTX", "gfx1100", "gfx1100", 32),
        ("gpu", "NVIDIA H200", "9.0", None, 32),
        ("cpu", "gfx", "", None, 32),
    ],
)
def test_an_amd_gpu_is_known_by_its_architecture(
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    kind: str,
    capability: str,
    gfx: str | None,
    width: int,
) -> None:
    found = SimpleNamespace(platform=platform, device_kind=kind, compute_capability=capability)
    monkeypatch.setattr(device, "target_device", lambda: found)
    assert (device.gfx_version(), device.wave_size()) == (gfx, width)
    assert (device.sm_version() is None) == (capability != "9.0")


def test_a_step_is_prepared_for_the_device(on: Any) -> None:
    on("gpu", "9.0", mosaic=NO_80)
    assert choose_backend(None) == "mosaic"
    assert choose_backend(("triton", "xla")) == "triton"


def test_a_step_is_prepared_for_its_calls(on: Any) -> None:
    """In particular for a cache in float32, which a GPU's best backend does not take."""
    on("gpu", "9.0", mosaic=NO_80)
    batch = (CALL.block_tables, CALL.context_lens, CALL.query_start_loc, len(CALL.q))
    made = make_metadata(*batch, call=(CALL.q, CALL.kv_cache))
    assert made.backend == "triton"
    with pytest.raises(ValueError, match="'mosaic' lacks head dimension 80"):
        make_metadata(*batch, backend="mosaic", call=(CALL.q, CALL.kv_cache))


def step() -> tuple[dict[str, Any], list[Any]]:
    """A call's arguments, and those of its metadata."""
    arguments = CALL._asdict() | {"scale": 1.0, "query_start_loc": jnp.array([0, 1, 3])}
    arguments["context_lens"] = jnp.array([4, 7], jnp.int32)
    return arguments, [arguments[n] for n in ("block_tables", "context_lens", "query_start_loc")]


@pytest.mark.parametrize("backend", [None, "xla", ("numba", "xla")])
@pytest.mark.slow
def test_the_backend_of_the_metadata_runs(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    arguments, batch = step()
    made = make_metadata(*batch, 3, backend="xla")
    attend, ran = backends.implementation("xla").attend, []

    def watched(*call: Any) -> Any:
        ran.append(call[-1])
        return attend(*call)

    monkeypatch.setattr("pallas_kernels.xla.attention.attend", watched)
    paged_attention(**arguments, backend=backend, metadata=made)
    assert ran == [made.work]


@pytest.mark.parametrize("backend", ["xla", ("numba", "xla")])
def test_metadata_of_another_backend_is_refused(backend: Any) -> None:
    arguments, batch = step()
    made = make_metadata(*batch, 3, backend="triton")
    with pytest.raises(MetadataError, match=r"made for 'triton', given with backend=.*xla"):
        paged_attention(**arguments, backend=backend, metadata=made)


def test_metadata_of_a_backend_that_lacks_the_call_is_refused() -> None:
    """No layer makes metadata of its own in its place."""
    arguments, batch = step()
    made = make_metadata(*batch, 3, backend="mosaic")
    with pytest.raises(MetadataError, match=r"'mosaic' lacks a cache of float32.*call=\(q, kv_c"):
        paged_attention(**arguments, metadata=made)
