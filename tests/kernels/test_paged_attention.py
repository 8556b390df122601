"""Any kernel of paged attention against the oracle; see docs/conformance.md."""

from dataclasses import replace

import pytest

from paged_conformance.kernel.agreement import LATENTS, SHAPES, of_a_model
from paged_conformance.kernel.cases import OPTIONS
from paged_conformance.kernel.target import Kernel
from tests.kernels.holds import hold, hold_example

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.slow
def test_agrees_with_the_oracle(kernel: Kernel, options: str) -> None:
    hold(f"oracle-{options}", kernel)


@pytest.mark.parametrize("options", ["plain", "wide-window", "everything"])
def test_decodes_agree_with_the_oracle(kernel: Kernel, options: str) -> None:
    """The steps are known to be nothing else, so less may be compiled for them."""
    hold(f"decodes-{options}", kernel)


@pytest.mark.parametrize("options", ["plain", "everything"])
@pytest.mark.slow
def test_long_contexts_agree_with_the_oracle(kernel: Kernel, options: str) -> None:
    hold(f"long-contexts-{options}", kernel)


@pytest.mark.slow
def test_any_layer_of_any_number(kernel: Kernel) -> None:
    hold("any-layer", kernel)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.slow
def test_float_dtypes_accumulate_in_float32(kernel: Kernel, dtype: str) -> None:
    hold(f"dtype-{dtype}", kernel)


@pytest.mark.parametrize("options", ["plain", "everything"])
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_quantised_caches_with_scales(kernel: Kernel, dtype: str, options: str) -> None:
    hold(f"cache-{dtype.replace('_', '-')}-{options}", kernel)


@pytest.mark.parametrize("options", ["plain", "everything"])
def test_values_in_the_keys(kernel: Kernel, options: str) -> None:
    """The cache has keys alone, as in latent attention."""
    hold(f"keys-alone-{options}", kernel)


def test_values_in_the_keys_of_an_8_bit_cache(kernel: Kernel) -> None:
    hold("keys-alone-int8", kernel)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("geometry", LATENTS, ids=lambda g: "B{}-G{}-D{}".format(g[0], *g[2:]))
def test_latents_of_models(kernel: Kernel, geometry: tuple[int, int, int, int], dtype: str) -> None:
    few = replace(kernel.sizes, tokens=24, seqs=4, context=96)
    example = of_a_model(few, geometry, dtype, keys_alone=True)
    hold_example("latents-of-models", kernel, example)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("geometry", SHAPES, ids=lambda g: "B{}-K{}-G{}-D{}".format(*g))
@pytest.mark.slow
def test_shapes_of_models(kernel: Kernel, geometry: tuple[int, int, int, int], dtype: str) -> None:
    hold_example("shapes-of-models", kernel, of_a_model(kernel.sizes, geometry, dtype))


def test_padding_tokens_give_zeros(kernel: Kernel) -> None:
    hold("padding-gives-zeros", kernel)


def test_padding_tokens_have_no_weight(kernel: Kernel) -> None:
    hold("padding-weighs-nothing", kernel)
