"""The property suite itself: it passes what is right, whatever sizes an adapter asks for."""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpu_kernels.attention.attention_kernel import NAME
from paged_conformance.kernel import PROPERTIES
from paged_conformance.kernel.cases import case_of, make_case
from paged_conformance.kernel.draws import long_steps, steps
from paged_conformance.kernel.sizes import Sizes, of_numbers, to_numbers
from paged_conformance.kernel.wrong.plain import SMALL, Plain
from pallas_kernels.backends import BACKENDS
from tests.kernels import test_invariants, test_paged_attention
from tests.kernels.holds import hold
from tests.kernels.kernel import Kernel, ours

some_sizes = st.builds(
    Sizes,
    tokens=st.integers(1, 30),
    seqs=st.integers(1, 9),
    context=st.integers(1, 70),
    long_context=st.none() | st.integers(1, 200),
    tile=st.integers(1, 40),
    step=st.integers(1, 80),
    geometries=st.lists(
        st.tuples(*[st.integers(1, 33)], *[st.integers(1, 3)] * 3), min_size=1, max_size=2
    ).map(tuple),
    layers=st.integers(1, 3),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    examples=st.sampled_from([1, 20]),
    decode_only=st.booleans(),
)


@given(sizes=some_sizes, data=st.data())
def test_cases_fit_whatever_sizes_are_asked_for(sizes: Sizes, data: st.DataObject) -> None:
    strategy, limits = data.draw(
        st.sampled_from([(steps, sizes), (long_steps, sizes.long())]), label="which"
    )
    case = case_of(data.draw(strategy(sizes)))
    new, width = case.query_lens, case.block_tables.shape[1]
    assert len(case.q) == (limits.seqs if sizes.decode_only else limits.tokens)
    assert len(new) == limits.seqs and 1 <= case.num_tokens <= len(case.q)
    assert (new >= 0).all() and (new <= case.context_lens).all()
    assert (new <= 1).all() or not sizes.decode_only
    assert ((new == 0) == (case.context_lens == 0)).all()
    assert (np.diff(np.flatnonzero(new == 0)) == 1).all() and new[0] > 0
    assert (case.context_lens <= limits.context).all() and width * case.block_size >= limits.context
    assert 0 <= case.layer < sizes.layers == len(case.kv_cache)
    assert ((case.block_tables >= 0) & (case.block_tables < case.kv_cache.shape[2])).all()


@given(sizes=some_sizes, data=st.data())
def test_what_is_printed_makes_the_case_again(sizes: Sizes, data: st.DataObject) -> None:
    case = case_of(data.draw(steps(sizes)))
    exact = case.q.dtype == np.float32
    half = exact and data.draw(st.booleans())
    case = case.as_dtype("float16") if half else case.quantized("int8")
    again = eval(repr(case), {"case_of": case_of})
    for name, value in vars(case).items():
        np.testing.assert_array_equal(getattr(again, name), value)


@given(sizes=some_sizes, data=st.data())
def test_examples_and_sizes_are_plain_json(sizes: Sizes, data: st.DataObject) -> None:
    step = data.draw(steps(sizes))
    assert json.loads(json.dumps(step)) == step
    assert of_numbers(json.loads(json.dumps(to_numbers(sizes)))) == sizes


def of_the_page() -> Kernel:
    """The adapter that the documentation shows, with a kernel behind it."""
    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text("utf-8")
    shown: dict[str, Any] = {}
    (block,) = (one for one in page.split("```python\n")[1:] if "class Mine:" in one)
    exec(block.split("```")[0], shown)
    mine = shown["Mine"]
    sizes = replace(mine.sizes, tokens=24, seqs=4, context=40)
    return type(mine.name, (Plain,), {"missing": mine.missing, "sizes": sizes})()


def sized(**sizes: Any) -> Kernel:
    """A right kernel that wants to be tried on such steps."""
    kernel = type(" ".join(f"{name}={value}" for name, value in sizes.items()), (Plain,), {})()
    kernel.sizes = replace(SMALL, **{"long_context": 100} | sizes)
    return kernel


one_block = ((64, 1, 1, 4),)
RIGHT: list[Kernel] = [
    of_the_page(),
    sized(seqs=1, context=400),
    sized(seqs=1, tokens=1),
    sized(seqs=5, tokens=5, tile=40, dtype="float16"),
    sized(seqs=13),
    sized(tokens=1, context=1),
    sized(tile=1, step=1),
    sized(context=1, long_context=None, geometries=one_block),
    sized(context=2, geometries=one_block, tile=3),
    sized(layers=1, geometries=((1, 1, 1, 1),)),
    sized(decode_only=True, tokens=2, seqs=7),
    sized(seqs=1, tokens=1, context=1, tile=1, geometries=((1, 1, 1, 1),), decode_only=True),
]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the CPU's kernels are for a CPU")
def test_the_suite_runs_on_the_kernels_of_both_packages() -> None:
    """None is left out without a word, and what stands for `cpu_kernels` calls its kernel."""
    kernels = {kernel.name: kernel for kernel in ours()}
    assert list(kernels) == list(BACKENDS)
    case = make_case([(1, 4), (2, 0)], 0, (4, 1, 2, 8), Sizes(tokens=3, seqs=2, context=5))
    arrays = (case.q, case.kv_cache, case.block_tables, case.context_lens, case.query_start_loc)
    options = {"layer": 0, "scale": 1.0, "decode_only": False}
    program = jax.jit(lambda *given: kernels["numba"].attend(*given, **options))
    assert NAME in program.lower(*arrays).as_text()


@pytest.fixture
def three_examples() -> Iterator[None]:
    usual = settings.get_current_profile_name()
    settings.register_profile("three", settings.default, max_examples=3)
    settings.load_profile("three")
    yield
    settings.load_profile(usual)


@pytest.mark.usefixtures("three_examples")
@pytest.mark.parametrize("slow", [False, True], ids=["fast", "slow"])
@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.name)
@pytest.mark.slow
def test_a_right_kernel_passes(kernel: Kernel, slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite takes other ways with a kernel that is slow to try, where something is drawn."""
    found = [prop.name for prop in PROPERTIES]
    if slow:
        monkeypatch.setattr(kernel, "sizes", replace(kernel.sizes, examples=1))
        found = [name for name in found if not name.endswith("of-models")]
    assert [name for name in found if fails(name, kernel)] == []


def fails(name: str, kernel: Kernel) -> bool:
    try:
        hold(name, kernel)
    except pytest.skip.Exception:
        return False
    except Exception:
        return True
    return False


def test_each_property_is_a_test_of_our_kernels() -> None:
    """The tests of `tests/kernels` name properties: what they pass to `hold`."""
    held: set[str] = set()
    for module in (test_paged_attention, test_invariants):
        names = re.findall(r'hold(?:_example)?\(\s*f?"(.+?)"', inspect.getsource(module))
        held |= {re.sub(r"\{.*?\}", "*", name) for name in names}
    assert all(any(fnmatch(prop.name, one) for one in held) for prop in PROPERTIES)
    assert all(any(fnmatch(prop.name, one) for prop in PROPERTIES) for one in held)
