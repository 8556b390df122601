"""From what TARGET names to a kernel: an adapter, a function, or a kernel in another process."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from paged_conformance.kernel.arrays import FLOATS, LARGEST, has_dtype
from paged_conformance.kernel.cases import OPTIONS, Case, fill, make_case
from paged_conformance.kernel.functions import Function, JaxFunction, uses_jax
from paged_conformance.kernel.in_json import SMALL, InJson
from paged_conformance.kernel.sizes import GEOMETRY, Sizes, of_numbers, to_numbers
from paged_conformance.kernel.target import Kernel, freedoms
from paged_conformance.kernel.words import ARGUMENTS, CAPABILITIES, FEATURES, FREEDOMS


def adapter_of(found: Any) -> Kernel:
    """The adapter for what was found under the target's name.

    It is an adapter (it has `missing`; a class is called); or what makes a kernel that takes plain
    JSON (it has `capabilities`, or it has the method `attend` itself); or a function with our
    signature, which gets JAX arrays and is compiled if its module uses JAX, else NumPy arrays.
    """

    # Without asking the object: one that stands for another process has every attribute.
    def has(name: str) -> bool:
        return inspect.getattr_static(found, name, None) is not None

    if has("missing"):
        return cast(Kernel, found() if inspect.isclass(found) else found)
    sizes = _sizes_in_json(found.sizes) if has("sizes") else SMALL
    words = found.capabilities if has("capabilities") else None
    if has("attend") and not inspect.isclass(found):
        return InJson(lambda: found, words, sizes)
    if has("capabilities") or has("attend"):
        return InJson(found, words, sizes)
    name = getattr(found, "__name__", type(found).__name__)
    return (JaxFunction if uses_jax(found) else Function)(name, found)


def _sizes_in_json(numbers: Mapping[str, int]) -> Sizes:
    """SMALL with other numbers; its geometries go if one is named."""
    usual = SMALL
    if numbers.keys() & {*GEOMETRY}:
        usual = replace(usual, geometries=Sizes.geometries)
    return of_numbers(to_numbers(usual) | dict(numbers))


class Target:
    """What the properties are given as `make`: the kernel, and what it takes.

    Attributes:
        kernel: The adapter.
        sizes: Its sizes, as whole numbers.
    """

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.sizes = to_numbers(kernel.sizes)

    def __call__(self, **sizes: Any) -> Kernel:
        return self.kernel

    @cached_property
    def lacking(self) -> Mapping[str, str]:
        """Each word that the kernel lacks, and why, as it said when it was asked."""
        found = {word: f"the capability {word}" for word in FREEDOMS.keys() - freedoms(self.kernel)}
        for word in (*FLOATS, *LARGEST):
            if not has_dtype(word):
                found[word] = f"{word}, since the package ml_dtypes is not installed"
        for word in [word for word in FEATURES if word not in found]:
            reason = self._asked(word)
            if reason is not None:
                found[word] = reason
        return found

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset(CAPABILITIES.keys() - self.lacking.keys())

    def _asked(self, word: str) -> str | None:
        """Why a feature is lacking, if it is in decodes and in prompts; None if it is in one."""
        said = []
        for decode_only in (True, False):
            plain = self._call(decode_only)
            if word not in ("prompts", *FLOATS) and self.kernel.missing(plain, {}) is not None:
                continue  # it lacks more than the word
            if word == "prompts" and plain.decode_only:
                continue
            case = _with(plain, word)
            options = fill(OPTIONS[word], case) if word in ARGUMENTS else {}
            said.append(self.kernel.missing(case, options))
        return None if None in said or not said else said[0]

    def _call(self, decode_only: bool) -> Case:
        sizes = replace(self.kernel.sizes, tokens=4, seqs=3)
        sizes = replace(sizes, context=min(sizes.context, 8))
        if not has_dtype(sizes.dtype):
            sizes = replace(sizes, dtype="float32")
        lengths = [(1, sizes.context - 1)] if decode_only else [(min(2, sizes.context), 0), (1, 0)]
        return make_case(lengths, 0, sizes.geometries[0], sizes, decode_only)


def _with(case: Case, word: str) -> Case:
    if word in FLOATS:
        return case.as_dtype(word)
    if word in LARGEST:
        return case.quantized(word)
    return case.values_in_keys() if word == "keys-alone" else case


def target(found: Any) -> Target:
    """What TARGET names, ready for the properties."""
    return found if isinstance(found, Target) else Target(adapter_of(found))
