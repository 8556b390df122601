"""`QuantizedSource`: a checkpoint with `X.weight` in place of the parts of each quantised module X.

A matrix is read in the form that the array asks for which it is read into: as numbers, or as rows
of codes.
"""

import functools
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.models.quantization.modules import Matrix, Method, modules_of
from jax_engine.models.quantization.parts import Parts, RawSource
from jax_engine.weights.codes import Kind

Shape = tuple[int, ...]
MAX_KINDS = 256


class Module:
    """The matrix of a quantised module, or those of its experts.

    Attributes:
        matrices: one, or one for each expert.
        stacked: whether there is an axis of experts.
        turned: whether its shape is [K, N].
        parts: what it is made of.
    """

    def __init__(self, made: Matrix | Sequence[Matrix], parts: Parts, turned: bool) -> None:
        self.stacked = isinstance(made, Sequence)
        self.matrices: Sequence[Matrix] = made if isinstance(made, Sequence) else (made,)
        self.turned, self.parts = turned, parts

    @property
    def shape(self) -> Shape:
        last = self.matrices[0].shape
        return (
            *((len(self.matrices),) if self.stacked else ()),
            *last[:: -1 if self.turned else 1],
        )

    def read_into(self, out: np.ndarray) -> None:
        coded = out.dtype.fields is not None
        for here, matrix in zip(out if self.stacked else (out,), self.matrices, strict=True):
            if coded:
                matrix.read_rows(here)
            else:
                matrix.read_numbers(here.T if self.turned else here)


class QuantizedSource:
    """Tensors of a quantised checkpoint. Shapes and dtypes of all parts are checked when opened.

    Raises:
        WeightsError: a part is missing, or of another shape or dtype; nothing is quantised.
    """

    def __init__(self, source: RawSource, method: Method, name: str) -> None:
        self.location: Path = source.location
        self.source = source
        modules, others = modules_of(source, method.ends)
        self._others = set(others)
        self._modules: dict[str, Module] = {}
        for module, parts in modules.items():
            shown = module + method.shown
            if shown in self._others:
                raise WeightsError(
                    f"{source.describe(shown)}: there are also quantised parts of this tensor, "
                    f"{parts.describe()}."
                )
            self._modules[shown] = Module(method.matrix(parts), parts, method.turned(module))
        if not self._modules:
            raise WeightsError(
                f"{source.location}: quantization_config has quant_method {name!r}, but no tensor "
                f"is quantised; expected names that end in {' or '.join(method.ends)}."
            )

    def names(self) -> Collection[str]:
        return self._others | self._modules.keys()

    def shape(self, name: str) -> Shape:
        """[N, K], or [E, N, K]; the last two swapped if it is `turned`."""
        return self._modules[name].shape if name in self._modules else self.source.shape(name)

    @functools.cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of all tensors; a record's `kind` is an index. Reads scales.

        Raises:
            WeightsError: There are more than an index can tell apart, or values are out of range.
        """
        found = dict.fromkeys(self.kind(name) for name in sorted(self._modules))
        kinds = tuple(kind for kind in found if kind is not None)
        if len(kinds) > MAX_KINDS:
            raise WeightsError(
                f"{self.location}: {len(kinds)} kinds of codes; expected {MAX_KINDS} at most."
            )
        return kinds

    def kind(self, name: str) -> Kind | None:
        """How rows of codes are coded; None: there are only numbers. May read scales.

        Of the matrices of experts, `scale_dtype` is that of all. Raises WeightsError.
        """
        if name not in self._modules:
            return None
        first, *others = dict.fromkeys(one.kind for one in self._modules[name].matrices)
        if first is None or not others:
            return first
        return first._replace(scale_dtype="float32")

    def order(self, name: str) -> np.ndarray | None:
        """Act-order: codes are stored in this order of columns, by which x must be gathered.

        None: they are in the columns' own order. Raises WeightsError.
        """
        if name not in self._modules:
            return None
        return self._modules[name].matrices[0].order

    def turned(self, name: str) -> bool:
        """Whether its shape, and that of its numbers, is [K, N] or [E, K, N].

        Rows of codes are [N] or [E, N] all the same: a `Transpose` of them must leave them so.
        """
        return name in self._modules and self._modules[name].turned

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Writes the numbers into an array of floats, columns in their own order; or rows of codes.

        Rows are records [N] or [E, N] of `row_dtype(kinds, K)`. Only what has a kind has rows.
        Thread-safe. Raises WeightsError.
        """
        if name not in self._modules:
            self.source.read_into(name, out)
            return
        self._modules[name].read_into(out)
        kind = self.kind(name)
        if out.dtype.fields is not None and kind is not None:
            out["kind"] = self.kinds.index(kind)

    def raw(self, name: str) -> np.ndarray:
        """A tensor of the file as it is stored, such as a scale of the KV cache; KeyError."""
        return self.source.raw(name)

    def describe(self, name: str) -> str:
        if name in self._modules:
            return self._modules[name].parts.describe()
        return self.source.describe(name)
