"""The kernels' suite: it catches what is wrong, passes what is right, and needs little.

Whole runs of the suite on real kernels are in `tests/kernels`.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from paged_conformance import Broken, Capabilities, Example, Lacking, Property, Refused
from paged_conformance.kernel import CAPABILITIES, PROPERTIES, Target, target
from paged_conformance.kernel.agreement import check_agrees
from paged_conformance.kernel.arrays import FLOATS, LARGEST, from_json, to_json
from paged_conformance.kernel.cases import OPTIONS, case_of, fill, step_of
from paged_conformance.kernel.functions import Function, JaxFunction
from paged_conformance.kernel.invariants import NOTHING, WINDOWS
from paged_conformance.kernel.right import RIGHT, Strict, TakesNothing
from paged_conformance.kernel.sizes import Sizes, of_numbers
from paged_conformance.kernel.target import attend
from paged_conformance.kernel.words import FREEDOMS
from paged_conformance.kernel.wrong.batching import LaterStartsAreShifted
from paged_conformance.kernel.wrong.kernels import table, wrong_kernels
from paged_conformance.kernel.wrong.plain import SMALL, Plain
from paged_conformance.kernel.wrong.reading import OwnBlocksOnly
from paged_conformance.pipes import Process
from paged_conformance.search import search

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
NAMED = {prop.name: prop for prop in PROPERTIES}
SECONDS = 120.0  # a limit for a slow machine: a wrong kernel is found by its examples
FEW = 300

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")


def has(made: Target) -> Capabilities:
    return Capabilities(made.capabilities, made.sizes)


def first_failure(prop: Property, made: Target, examples: int) -> Exception | None:
    """What the first of so many examples raises that fails, the same in each run."""
    limits = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def example(example: Example) -> None:
        try:
            prop.check(made, json.loads(json.dumps(example)))
        except Lacking:
            hypothesis.reject()

    try:
        limits(given(prop.examples(has(made)))(example))()
    except hypothesis.errors.Unsatisfiable:
        return None
    except Exception as error:
        return error
    return None


def failing(kernel: Any, examples: int) -> list[str]:
    """Properties that a kernel has the capabilities for, and breaks."""
    made = target(kernel)
    able = [prop for prop in PROPERTIES if made.capabilities.issuperset(prop.needs)]
    return [prop.name for prop in able if first_failure(prop, made, examples) is not None]


@pytest.mark.parametrize("kernel", wrong_kernels(), ids=lambda kernel: kernel.__name__)
def test_a_wrong_kernel_fails(kernel: type[Plain]) -> None:
    """Within a few hundred examples of a fixed seed; the one that is shown fails again alone."""
    prop, made = NAMED[kernel.caught_by], target(kernel)
    found = search(prop, made, has(made), seconds=SECONDS, seed=0)
    assert found.failed and found.num_examples <= FEW
    # Nothing else, which would be a mistake in the mistake; an index is what some get wrong.
    with pytest.raises((AssertionError, IndexError)):
        prop.check(made, json.loads(json.dumps(found.example)))


def test_no_property_is_one_that_cannot_fail() -> None:
    shown = {family(kernel.caught_by) for kernel in wrong_kernels()}
    assert {family(prop.name) for prop in PROPERTIES} == shown
    assert len(wrong_kernels()) >= 42


def family(name: str) -> str:
    """Options and dtypes are a name's end; a wrong kernel for one of them is enough."""
    ends = {*OPTIONS, *WINDOWS, *NOTHING, *FLOATS, "int8", "float8-e4m3fn"}
    for end in sorted(ends, key=len, reverse=True):
        if name.endswith(f"-{end}"):
            return family(name.removesuffix(f"-{end}"))
    return name


def test_the_documentation_shows_them() -> None:
    page = PAGE.read_text("utf-8")
    assert table() in page and f"Each of these {len(wrong_kernels())} kernels" in page


@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.__name__)
def test_a_right_kernel_of_an_odd_kind_passes(kernel: type[Plain]) -> None:
    assert failing(kernel, 4) == []


@pytest.mark.parametrize("word", FREEDOMS)
def test_each_freedom_is_taken(word: str) -> None:
    """A kernel that relies on a step without it passes by saying so, and fails if it does not."""
    (kind,) = (
        one
        for one in RIGHT
        if set(FREEDOMS) - set(getattr(one, "capabilities", FREEDOMS)) == {word}
    )
    greedy = type("Greedy", (kind,), {"capabilities": frozenset(FREEDOMS)})
    made = target(greedy)
    about = [prop for prop in PROPERTIES if word in prop.needs] or [NAMED["oracle-plain"]]
    assert any(first_failure(prop, made, 40) is not None for prop in about)


def test_steps_without_freedoms_give_the_same_results() -> None:
    """What is left out, turned round and put back again is the same step."""
    for decode_only in (False, True):
        lengths = [(1, 9), (1, 3)] if decode_only else [(3, 5), (1, 9), (2, 0)]
        step = step_of(lengths, 1, (4, 2, 2, 8), SMALL, decode_only)
        case = case_of(step)
        options = fill(OPTIONS["everything"], case)
        for one, other in zip(
            attend(Plain(), case, options), attend(TakesNothing(), case, options), strict=True
        ):
            assert one is not None and other is not None
            np.testing.assert_array_equal(one, other)


def test_the_smallest_example_says_what_matters() -> None:
    """A shared block is in it where that is the mistake, and not where it is another."""
    made = target(OwnBlocksOnly)
    found = search(NAMED["oracle-plain"], made, has(made), seconds=SECONDS, seed=0)
    assert len(found.example["step"]["shared"]) == 1
    made = target(LaterStartsAreShifted)
    found = search(NAMED["oracle-plain"], made, has(made), seconds=SECONDS, seed=0)
    assert found.example["step"]["shared"] == []
    assert [new for new, _ in found.example["step"]["lengths"]] == [1, 1, 1]


class SlowAndWrong(LaterStartsAreShifted):
    """So slow, it says, that it gets few examples, all of them full steps."""

    sizes = Sizes(**vars(SMALL) | {"examples": 3, "shrink": True})


def test_the_example_of_a_slow_kernel_is_made_smaller_too() -> None:
    made = target(SlowAndWrong)
    found = search(NAMED["oracle-plain"], made, has(made), seconds=SECONDS, seed=0)
    assert found.failed and len(found.example["step"]["lengths"]) == 3


# A kernel whose arguments and results are plain JSON.


class InJsonItself:
    """The reference's attention behind JSON, with a window as its only option."""

    capabilities = frozenset({*FREEDOMS, "prompts", "window", "float32"})
    sizes: ClassVar = {"block_size": 4, "kv_heads": 1, "group": 2, "head_dim": 8, "context": 24}

    def attend(self, **call: Any) -> dict[str, Any]:
        call = json.loads(json.dumps(call))  # nothing else passes a pipe
        from reference.attention import paged_attention

        given = {name: from_json(x) if isinstance(x, dict) else x for name, x in call.items()}
        del given["decode_only"]
        if given.get("window") == 10**6:
            raise Refused("windows of a million tokens")
        return {"out": to_json(paged_attention(**given)[0])}


def test_a_kernel_in_plain_json() -> None:
    made = target(InJsonItself)
    assert made.kernel.sizes.geometries == ((4, 1, 2, 8),) and made.kernel.sizes.seqs == SMALL.seqs
    assert {"bfloat16", "soft-cap", "lse", "int8", "keys-alone"} <= set(made.lacking)
    assert failing(InJsonItself, 3) == []
    refused = NAMED["option-of-nothing-window"]
    assert first_failure(refused, made, 2) is None
    with pytest.raises(Lacking, match="windows of a million tokens"):
        refused.check(
            made, {"step": step_of([(1, 0)], 0, (4, 1, 2, 8), SMALL), "options": {"window": 10**6}}
        )


def test_the_kernel_of_the_page_in_another_process(tmp_path: Path) -> None:
    blocks = PAGE.read_text("utf-8").split("```python\n")[1:]
    (block,) = (one.split("```")[0] for one in blocks if "class InJson:" in one)
    (tmp_path / "in_json.py").write_text(block, "utf-8")
    with Process(f"{sys.executable} {tmp_path / 'in_json.py'}") as process:
        made = target(process)
        assert made.kernel.sizes.geometries == ((16, 2, 2, 64),)
        assert {"unread-nan", "unused-entries", "lse"} <= set(made.lacking)
        for name in ("oracle-window", "company", "two-parts"):
            able = made.capabilities.issuperset(NAMED[name].needs)
            assert able == (name != "two-parts")
            assert not able or first_failure(NAMED[name], made, 3) is None
        step = step_of([(1, 0)], 0, (4, 1, 1, 130), made.kernel.sizes)
        with pytest.raises(Lacking, match="heads larger than 128"):
            check_agrees(made, {"step": step, "options": {}})


def test_after_a_failure_it_is_made_again() -> None:
    made = []

    class Broke:
        def attend(self, **call: Any) -> dict[str, Any]:
            raise OSError("gone")

    class Factory:
        capabilities = ("prompts",)

        def __call__(self, **sizes: Any) -> Broke:
            made.append(sizes)
            return Broke()

    example = {"step": step_of([(1, 0)], 0, (4, 1, 2, 8), SMALL), "options": {}}
    kernel = target(Factory())
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            check_agrees(kernel, example)
    assert len(made) == 2


def test_words_and_sizes_that_it_cannot_know_are_refused() -> None:
    class Unknown:
        capabilities = ("windows",)

    with pytest.raises(ValueError, match="capabilities has 'windows'"):
        target(Unknown())
    with pytest.raises(ValueError, match="sizes has 'blocksize'"):
        of_numbers({"blocksize": 4})
    with pytest.raises(ValueError, match="seqs=0"):
        of_numbers({"seqs": 0})
    with pytest.raises(ValueError, match="dtype=3"):
        of_numbers({"dtype": 3})
    with pytest.raises(ValueError, match="geometry"):
        of_numbers({"head_dim": 0})


@pytest.mark.parametrize("dtype", [*FLOATS, *LARGEST, "int32"])
def test_arrays_pass_through_json(dtype: str) -> None:
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    for array in (np.arange(24).reshape(2, 3, 4)[:, ::2], np.zeros((0, 3)), np.float32(5)):
        array = np.asarray(array).astype(kind)
        again = from_json(json.loads(json.dumps(to_json(array))))
        assert again.dtype == kind and again.shape == array.shape
        assert again.tobytes() == array.tobytes()
    assert to_json(np.ones(1, ">f4")) == to_json(np.ones(1, "<f4"))
    with pytest.raises(ValueError, match="4 bytes are no array of"):
        from_json(
            {"shape": [2], "dtype": "float32", "base64": to_json(np.zeros(1, np.float32))["base64"]}
        )


# Functions.


def in_numpy(
    q, kv_cache, block_tables, context_lens, query_start_loc, *, layer, scale, window=None
):
    from reference.attention import paged_attention

    arrays = (q, kv_cache, block_tables, context_lens, query_start_loc)
    return paged_attention(*arrays, layer=layer, scale=scale, window=window)[0]


def test_a_function_lacks_the_options_that_its_signature_lacks() -> None:
    kernel = target(in_numpy)
    assert type(kernel.kernel) is Function
    assert kernel.lacking["sinks"] == "the argument sinks" and "window" in kernel.capabilities
    assert set(CAPABILITIES) == kernel.capabilities | set(kernel.lacking)


def test_a_function_of_jax_gets_its_arrays() -> None:
    from paged_conformance.adapters.jax_gather_kernel import paged_attention

    made = target(paged_attention)
    assert type(made.kernel) is JaxFunction
    example = {"step": step_of([(1, 6), (3, 0)], 0, (4, 2, 2, 8), SMALL), "options": {"window": 5}}
    check_agrees(made, example)
    with pytest.raises(Broken, match="instead of"):
        NAMED["unread-slots-all"].check(made, {**example, "options": {}, "poison": "nan"})


def test_results_of_another_shape_are_broken() -> None:
    step = step_of([(1, 6), (3, 0)], 0, (4, 2, 2, 8), SMALL)
    whole = case_of(step)

    def returns(out: Any) -> Callable[..., Any]:
        return lambda *arrays, **options: out

    for out, says in (
        (whole.q[:3], r"the result is \(3, 4, 8\)"),
        ((whole.q, whole.q), r"the log-sum-exp is \(24, 4, 8\)"),
        ((whole.q, None), "there is no log-sum-exp"),
    ):
        asked = {"return_lse": True} if isinstance(out, tuple) else {}
        with pytest.raises(Broken, match=says):
            check_agrees(target(Function("f", returns(out))), {"step": step, "options": asked})


WITHOUT = """
import sys
for name in ("jax", "ml_dtypes", "jax_engine", "pallas_kernels", "cpu_kernels", "tests"):
    sys.modules[name] = None
from paged_conformance.kernel import PROPERTIES, target
from paged_conformance import Capabilities
from paged_conformance.search import search
from reference.attention import paged_attention

def mine(*arrays, layer, scale, return_lse=False):
    out, lse = paged_attention(*arrays, layer=layer, scale=scale)
    return (out, lse) if return_lse else out

made = target(mine)
has = Capabilities(made.capabilities, {"tokens": 6, "seqs": 2, "context": 12})
ran = [prop for prop in PROPERTIES if has.words.issuperset(prop.needs)]
failed = [p.name for p in ran if search(p, made, has, seconds=0.01, seed=0).failed]
print(len(ran), failed, made.lacking["bfloat16"])
"""


def test_a_kernel_in_numpy_needs_neither_jax_nor_this_project() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        cwd=PAGE.parents[1],
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    ran, rest = run.stdout.split(" ", 1)
    assert int(ran) > 15
    assert rest == "[] bfloat16, since the package ml_dtypes is not installed\n"


def test_the_contract_names_every_capability_and_size() -> None:
    import paged_conformance.kernel

    contract = str(paged_conformance.kernel.__doc__)
    for word in CAPABILITIES:
        assert f"`{word}`" in contract
    assert Strict in RIGHT
