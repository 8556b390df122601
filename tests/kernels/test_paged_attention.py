"""Any kernel of paged attention against the oracle; see docs/conformance.md."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.kernels.cases import OPTIONS, Case, Lengths, Sizes, fill, make_case
from tests.kernels.draws import cases, decodes, lengths, long_cases, seeds
from tests.kernels.expected import assert_agrees
from tests.kernels.holds import attend, holds
from tests.kernels.kernel import Kernel

pytestmark = pytest.mark.conformance


def check(kernel: Kernel, case: Case, options: dict[str, Any] | None = None) -> None:
    options = fill(options or {}, case)
    assert_agrees(attend(kernel, case, options), case, options)


@pytest.mark.parametrize("options", OPTIONS)
@holds(case=cases)
def test_agrees_with_the_oracle(kernel: Kernel, options: str, case: Case) -> None:
    check(kernel, case, OPTIONS[options])


@pytest.mark.parametrize("options", ["plain", "wide-window", "everything"])
@holds(case=decodes)
def test_decodes_agree_with_the_oracle(kernel: Kernel, options: str, case: Case) -> None:
    """The steps are known to be nothing else, so less may be compiled for them."""
    check(kernel, case, OPTIONS[options])


@pytest.mark.parametrize("options", ["plain", "everything"])
@holds(case=long_cases)
def test_long_contexts_agree_with_the_oracle(kernel: Kernel, options: str, case: Case) -> None:
    check(kernel, case, OPTIONS[options])


@holds(lengths=lengths, seed=seeds, layers=lambda sizes: st.integers(1, 4))
def test_any_layer_of_any_number(kernel: Kernel, lengths: Lengths, seed: int, layers: int) -> None:
    sizes = replace(kernel.sizes, layers=layers)
    check(kernel, make_case(lengths, seed, sizes.geometries[0], sizes))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@holds(lengths=lengths, seed=seeds)
def test_float_dtypes_accumulate_in_float32(
    kernel: Kernel, dtype: str, lengths: Lengths, seed: int
) -> None:
    case = make_case(lengths, seed, kernel.sizes.geometries[0], kernel.sizes)
    check(kernel, case.as_dtype(dtype))


@pytest.mark.parametrize("options", ["plain", "everything"])
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
@holds(lengths=lengths, seed=seeds)
def test_quantised_caches_with_scales(
    kernel: Kernel, dtype: str, options: str, lengths: Lengths, seed: int
) -> None:
    case = make_case(lengths, seed, kernel.sizes.geometries[0], kernel.sizes)
    check(kernel, case.quantized(dtype), OPTIONS[options])


@pytest.mark.parametrize("options", ["plain", "everything"])
@holds(case=cases)
def test_values_in_the_keys(kernel: Kernel, options: str, case: Case) -> None:
    """The cache has keys alone, as in latent attention."""
    check(kernel, case.values_in_keys(), OPTIONS[options])


@holds(lengths=lengths, seed=seeds)
def test_values_in_the_keys_of_an_8_bit_cache(kernel: Kernel, lengths: Lengths, seed: int) -> None:
    case = make_case(lengths, seed, kernel.sizes.geometries[0], kernel.sizes)
    check(kernel, case.values_in_keys().quantized("int8"))


# (B, K, H / K, D) of latent attention: MiniCPM 3, DeepSeek V2 Lite, GLM-4.7-Flash, DeepSeek V3.
LATENTS = ((16, 1, 40, 288), (32, 1, 16, 576), (8, 1, 20, 576), (64, 1, 128, 576))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("geometry", LATENTS, ids=lambda g: "B{}-G{}-D{}".format(g[0], *g[2:]))
def test_latents_of_models(kernel: Kernel, geometry: tuple[int, int, int, int], dtype: str) -> None:
    few = replace(kernel.sizes, tokens=24, seqs=4, context=96)
    check(kernel, fixed_case(few, geometry).values_in_keys().as_dtype(dtype), OPTIONS["lse"])


# (B, K, H / K, D): every head dimension that models have, every block size, MHA, GQA and MQA.
SHAPES = (
    (8, 4, 1, 64),
    (32, 1, 4, 80),
    (16, 2, 3, 96),
    (64, 1, 2, 112),
    (128, 2, 1, 128),
    (16, 1, 8, 128),
    (32, 2, 2, 192),
    (8, 1, 5, 256),
)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("geometry", SHAPES, ids=lambda g: "B{}-K{}-G{}-D{}".format(*g))
def test_shapes_of_models(kernel: Kernel, geometry: tuple[int, int, int, int], dtype: str) -> None:
    check(kernel, fixed_case(kernel.sizes, geometry).as_dtype(dtype), OPTIONS["lse"])


def fixed_case(sizes: Sizes, geometry: tuple[int, int, int, int]) -> Case:
    """A decode of a full context, a chunk after others, a prompt, and a decode of nothing."""
    chunk = 1 if sizes.decode_only else max(min(sizes.tokens // 3, sizes.context), 1)
    before = min(sizes.context // 2, sizes.context - chunk)
    lengths = [(1, sizes.context - 1), (chunk, before), (chunk, 0), (1, 0)]
    while sum(new for new, _ in lengths) > sizes.tokens or len(lengths) > sizes.seqs:
        lengths.pop()
    return make_case(lengths, 7, geometry, sizes)


@holds(case=cases)
def test_padding_tokens_give_zeros(kernel: Kernel, case: Case) -> None:
    assert not attend(kernel, case)[0][case.num_tokens :].any()


@holds(case=cases)
def test_padding_tokens_have_no_weight(kernel: Kernel, case: Case) -> None:
    options = fill({"return_lse": True, "sinks": True}, case)
    _, lse = attend(kernel, case, options)
    assert lse is not None
    assert np.isneginf(lse[case.num_tokens :]).all()
    assert np.isfinite(lse[: case.num_tokens]).all()
