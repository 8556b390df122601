"""A kernel's result is the NumPy reference's, with every option, dtype and shape."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from paged_conformance.kernel.cases import OPTIONS, Options, Step, case_of, fill
from paged_conformance.kernel.draws import (
    decodes,
    first_steps,
    fixed_step,
    long_steps,
    sizes_of,
    steps,
)
from paged_conformance.kernel.expected import assert_agrees
from paged_conformance.kernel.sizes import Sizes
from paged_conformance.kernel.target import attend, kernel_of
from paged_conformance.kernel.words import ARGUMENTS
from paged_conformance.properties import Capabilities, Example, Property, demand

type Steps = st.SearchStrategy[Step]
type Draw = Callable[[Sizes], Steps]

# (B, K, H / K, D) of latent attention: MiniCPM 3, DeepSeek V2 Lite, GLM-4.7-Flash, DeepSeek V3.
LATENTS = ((16, 1, 40, 288), (32, 1, 16, 576), (8, 1, 20, 576), (64, 1, 128, 576))
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


def check_agrees(make: Any, example: Example) -> None:
    """The oracle's result for `step` with `options`."""
    case = case_of(example["step"])
    options = fill(example["options"], case)
    assert_agrees(attend(kernel_of(make), case, options), case, options)


def words_of(options: Options) -> tuple[str, ...]:
    """The capabilities that a call with these options needs."""
    words = {argument: word for word, argument in ARGUMENTS.items()}
    return tuple(words[name] for name in options)


def examples(draw: Draw, **others: Any) -> Callable[[Capabilities], st.SearchStrategy[Example]]:
    """Draws `step`, and for each of the others what it is, or a strategy, or one by the sizes."""

    def drawn(has: Capabilities) -> st.SearchStrategy[Example]:
        sizes = sizes_of(has)
        parts = {name: value(sizes) if callable(value) else value for name, value in others.items()}
        rest = {
            name: value if isinstance(value, st.SearchStrategy) else st.just(value)
            for name, value in parts.items()
        }
        return st.fixed_dictionaries({"step": draw(sizes), **rest})

    return drawn


def _agrees(
    name: str, sentence: str, draw: Draw, options: str = "plain", needs: tuple[str, ...] = ()
) -> Property:
    asked = OPTIONS[options]
    return Property(
        name=name,
        sentence=sentence,
        examples=examples(draw, options=asked),
        check=check_agrees,
        needs=(*needs, *words_of(asked)),
    )


def also(draw: Draw, **changes: Any) -> Draw:
    """The same steps with these entries."""
    return lambda sizes: draw(sizes).map(lambda step: step | changes)


def _any_layers(sizes: Sizes) -> Steps:
    return st.integers(1, 4).flatmap(lambda n: first_steps(replace(sizes, layers=n)))


def _shapes_of_models(
    geometries: tuple[tuple[int, int, int, int], ...], **changes: Any
) -> Callable[[Capabilities], st.SearchStrategy[Example]]:
    """Small steps of these geometries in float32 or bfloat16; with the log-sum-exp if it can."""

    def drawn(has: Capabilities) -> st.SearchStrategy[Example]:
        sizes = sizes_of(has)
        few = replace(
            sizes,
            tokens=min(sizes.tokens, 24),
            seqs=min(sizes.seqs, 4),
            context=min(sizes.context, 96),
            geometries=geometries,
        )
        dtypes = [name for name in ("float32", "bfloat16") if name in has] or ["float32"]
        step = st.builds(lambda a, b: a | {"dtype": b}, steps(few), st.sampled_from(dtypes))
        asked = OPTIONS["lse"] if "lse" in has else {}
        return st.fixed_dictionaries(
            {"step": step.map(lambda one: one | changes), "options": st.just(asked)}
        )

    return drawn


def of_a_model(
    sizes: Sizes, geometry: tuple[int, int, int, int], dtype: str, **changes: Any
) -> Example:
    """One example of a model's shape, with the log-sum-exp."""
    return {
        "step": fixed_step(sizes, geometry) | {"dtype": dtype, **changes},
        "options": OPTIONS["lse"],
    }


def check_padding_is_zero(make: Any, example: Example) -> None:
    case = case_of(example["step"])
    out = attend(kernel_of(make), case)[0][case.num_tokens :]
    demand(not out.any(), f"padding tokens got {np.count_nonzero(out)} numbers that are not 0")


def check_padding_weighs_nothing(make: Any, example: Example) -> None:
    case = case_of(example["step"])
    _, lse = attend(kernel_of(make), case, fill(example["options"], case))
    assert lse is not None
    rest, real = lse[case.num_tokens :], lse[: case.num_tokens]
    demand(bool(np.isneginf(rest).all()), "the log-sum-exp of a padding token is not -inf")
    demand(bool(np.isfinite(real).all()), "the log-sum-exp of a real token is not finite")


LIKE_THE_ORACLE = "The result equals the reference's: "
PROPERTIES = (
    *(
        _agrees(f"oracle-{name}", f"{LIKE_THE_ORACLE}prompts, chunks and decodes.", steps, name)
        for name in OPTIONS
    ),
    *(
        _agrees(f"decodes-{name}", f"{LIKE_THE_ORACLE}steps of decodes alone.", decodes, name)
        for name in ("plain", "wide-window", "everything")
    ),
    *(
        _agrees(f"long-contexts-{name}", f"{LIKE_THE_ORACLE}long contexts.", long_steps, name)
        for name in ("plain", "everything")
    ),
    _agrees("any-layer", f"{LIKE_THE_ORACLE}any layer of one to four.", _any_layers),
    *(
        _agrees(
            f"dtype-{dtype}",
            f"The result equals the reference's: sums of {dtype} are taken in float32.",
            also(first_steps, dtype=dtype),
            needs=(dtype,),
        )
        for dtype in ("float32", "bfloat16", "float16")
    ),
    *(
        _agrees(
            f"cache-{dtype.replace('_', '-')}-{name}",
            f"{LIKE_THE_ORACLE}a cache of {dtype} with a scale for each layer, side and head.",
            also(first_steps, cache=dtype),
            name,
            needs=(dtype,),
        )
        for dtype in ("int8", "float8_e4m3fn")
        for name in ("plain", "everything")
    ),
    *(
        _agrees(
            f"keys-alone-{name}",
            f"{LIKE_THE_ORACLE}a cache of keys alone, which are the values, too.",
            also(steps, keys_alone=True),
            name,
            needs=("keys-alone",),
        )
        for name in ("plain", "everything")
    ),
    _agrees(
        "keys-alone-int8",
        f"{LIKE_THE_ORACLE}a cache of keys alone in int8.",
        also(first_steps, keys_alone=True, cache="int8"),
        needs=("keys-alone", "int8"),
    ),
    Property(
        name="shapes-of-models",
        sentence=f"{LIKE_THE_ORACLE}heads and blocks of the sizes that models have.",
        examples=_shapes_of_models(SHAPES),
        check=check_agrees,
    ),
    Property(
        name="latents-of-models",
        sentence=f"{LIKE_THE_ORACLE}latents of the sizes that models have.",
        examples=_shapes_of_models(LATENTS, keys_alone=True),
        check=check_agrees,
        needs=("keys-alone",),
    ),
    Property(
        name="padding-gives-zeros",
        sentence="A query of no sequence gives zeros.",
        examples=examples(steps),
        check=check_padding_is_zero,
        needs=("padding",),
    ),
    Property(
        name="padding-weighs-nothing",
        sentence="A query of no sequence has the log-sum-exp -inf, any other a finite one.",
        examples=examples(steps, options={"return_lse": True, "sinks": True}),
        check=check_padding_weighs_nothing,
        needs=("padding", "lse", "sinks"),
    ),
)
