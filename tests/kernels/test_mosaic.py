"""What the Mosaic backend promises beyond what any kernel must, interpreted on the CPU."""

import inspect
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.mosaic_gpu import InterpretGPUParams, force_gpu_interpret_mode

from paged_conformance.kernel.cases import Case, Lengths, make_case, poisoned
from paged_conformance.kernel.expected import assert_agrees
from paged_conformance.kernel.sizes import Sizes
from pallas_kernels.call import Call, Options
from pallas_kernels.device import interpreting
from pallas_kernels.mosaic import attention, decode, plgpu
from pallas_kernels.tuning import MosaicDecodeConfig, MosaicPrefillConfig
from tests.kernels.kernel import Ours
from tests.kernels.tuned import Tuned

pytestmark = pytest.mark.skipif(not interpreting(), reason="the interpreter is for the CPU")

SIZES = Sizes(tokens=24, seqs=3, context=96, dtype="bfloat16")
mosaic = Ours("mosaic", SIZES)
MIXED = [(1, 60), (19, 70)]


def steps(**sizes: Any) -> Sizes:
    return Sizes(seqs=2, dtype="bfloat16", layers=2, **sizes)


# Stages are used again, both ends of a window are cut, a part of a context begins within another
# stage than the first; with six heads of 16 queries, one warpgroup clears for two.
NO_RACES = {
    "decode-1-stage": (
        Tuned(steps(context=260, decode_only=True), MosaicDecodeConfig(64, 1, 2)),
        [(1, 240), (1, 129)],
    ),
    "decode-2-stages": (
        Tuned(steps(context=330, decode_only=True), MosaicDecodeConfig(64, 2, 1)),
        [(1, 320), (1, 0)],
    ),
    "prefill-1-stage": (
        Tuned(steps(context=224, tokens=16), MosaicPrefillConfig(128, 64, 1)),
        [(15, 200)],
    ),
    "prefill-ping-pong": (
        Tuned(steps(context=224, tokens=16), MosaicPrefillConfig(128, 64, 2, ping_pong=True)),
        [(15, 200)],
    ),
}


@pytest.fixture
def races_raise() -> Iterator[None]:
    with force_gpu_interpret_mode(InterpretGPUParams(detect_races=True, on_race="raise")):
        yield


@pytest.mark.usefixtures("races_raise")
@pytest.mark.parametrize(("kernel", "lengths"), NO_RACES.values(), ids=NO_RACES.keys())
@pytest.mark.slow
def test_i48_no_races(kernel: Tuned, lengths: Lengths) -> None:
    case = make_case(lengths, 1, (16, 1, 6, 64), kernel.sizes)
    options = {"window": 190}
    got = kernel(poisoned(case, options["window"], np.nan), options)
    assert_agrees(got, case, options)


def callers() -> Iterator[str]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame.f_code.co_qualname
        frame = frame.f_back


@pytest.mark.usefixtures("races_raise")
@pytest.mark.parametrize("which", ["decode-1-stage", "prefill-1-stage"])
def test_i48_finds_a_planted_race(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits: for keys that arrive, in a decode, and for a stage that is read, in a tile."""
    kernel, lengths = NO_RACES[which]
    case = make_case(lengths, 1, (16, 1, 6, 64), kernel.sizes)
    wait = plgpu.barrier_wait
    never = {"decode-1-stage": "_Part.attend", "prefill-1-stage": "Ring.produce"}[which]

    def impatient(barrier: Any) -> None:
        if never not in callers():
            wait(barrier)

    monkeypatch.setattr(plgpu, "barrier_wait", impatient)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RACE DETECTED"):
        Tuned(kernel.sizes, *kernel.configs)(case, {})


EVERYTHING: dict[str, Any] = {
    "window": 70,
    "soft_cap": 5.0,
    "alibi_slopes": np.linspace(0.002, 0.05, 6, dtype=np.float32),
    "sinks": np.linspace(-1, 4, 6, dtype=np.float32),
    "return_lse": True,
}
# Six rows a query. The second warpgroup has no rows in tiles of up to ten queries.
WARPGROUPS: dict[str, tuple[MosaicPrefillConfig, Lengths, dict[str, Any]]] = {
    "one": (MosaicPrefillConfig(64, 64, 1), [(15, 120)], EVERYTHING),
    "three": (MosaicPrefillConfig(192, 64, 2), [(16, 150)], {"window": 70}),
    "ping-pong": (MosaicPrefillConfig(128, 64, 2, True), [(15, 200)], EVERYTHING),
    "ping-pong-no-window": (MosaicPrefillConfig(128, 64, 2, True), [(11, 130)], {"soft_cap": 5.0}),
    "ping-pong-large": (MosaicPrefillConfig(128, 128, 2, True), [(14, 190)], {"window": 1}),
    "ping-pong-half": (MosaicPrefillConfig(128, 64, 3, True), [(2, 62), (3, 190)], {}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("config", "lengths", "options"), WARPGROUPS.values(), ids=WARPGROUPS)
def test_any_number_of_warpgroups_agrees_with_the_oracle(
    config: MosaicPrefillConfig, lengths: Lengths, options: dict[str, Any]
) -> None:
    kernel = Tuned(steps(context=224, tokens=16), config)
    case = make_case(lengths, 2, (16, 1, 6, 64), kernel.sizes)
    got = kernel(poisoned(case, options.get("window"), np.nan), options)
    assert_agrees(got, case, options)


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", [80, 256])
def test_every_swizzle_and_the_largest_head(head_dim: int) -> None:
    case = make_case(MIXED, head_dim, (8, 1, 2, head_dim), SIZES)
    assert_agrees(mosaic(case, {}), case, {})


@pytest.mark.slow
@pytest.mark.parametrize("geometry", [(24, 1, 3, 64), (128, 1, 9, 96)])
def test_blocks_and_groups_that_fit_no_tile(geometry: tuple[int, int, int, int]) -> None:
    case = make_case(MIXED, 0, geometry, SIZES).as_dtype("float16")
    assert_agrees(mosaic(case, {}), case, {})


def test_a_split_context_with_everything() -> None:
    """Three splits, of which the short rows use fewer; a sink counts once."""
    sizes = Sizes(tokens=4, seqs=4, context=3 * decode.SMALLEST_PART, dtype="bfloat16")
    case = make_case([(1, 1500), (1, 600), (1, 3)], 0, (32, 1, 2, 64), sizes, decode_only=True)
    options: dict[str, Any] = {
        "soft_cap": 5.0,
        "alibi_slopes": np.array([0.01, 0.002], np.float32),
        "sinks": np.array([4.0, -1.0], np.float32),
        "return_lse": True,
    }
    assert_agrees(Ours("mosaic", sizes)(case, options), case, options)


def call(case: Case, **changes: Any) -> Call:
    arrays = (case.q, case.kv_cache, case.block_tables, case.context_lens, case.query_start_loc)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
    return Call(*shapes, jnp.int32(0))._replace(**changes)


def test_what_is_missing_is_said() -> None:
    def missing(geometry: tuple[int, int, int, int], dtype: str = "bfloat16") -> str | None:
        case = make_case([(1, 0)], 0, geometry, SIZES).as_dtype(dtype)
        return attention.missing(call(case), Options(1.0))

    assert missing((16, 2, 4, 112)) is None
    assert missing((16, 2, 4, 72)) == "head dimension 72 (a multiple of 16 up to 256 is needed)"
    assert missing((16, 1, 1, 512)) == "head dimension 512 (a multiple of 16 up to 256 is needed)"
    assert missing((12, 1, 1, 64)) == "block size 12 (a multiple of 8 is needed)"
    assert missing((16, 1, 65, 64)) == "65 query heads a KV head (at most 64)"
    assert missing((16, 1, 1, 64), "float32") == (
        "a cache of float32 (it has bfloat16 and float16)"
    )
