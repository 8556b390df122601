"""Opens a quantised checkpoint: finds its method, and has `X.weight` for each quantised module X.

The method is the checkpoint's own word, or the user's `quantization=`. `QuantizedSource` shows
`X.weight` in place of the parts of X. A matrix is read in the form that the array asks for which it
is read into: as numbers, or as rows of codes.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.file_schema import checked, read_json, short
from jax_engine.models.checkpoints.quantization import (
    awq,
    bitsandbytes,
    compressed_tensors,
    fp4,
    fp8,
    gptq,
    modelopt,
    squeezellm,
)
from jax_engine.models.checkpoints.quantization.method import (
    FIELD,
    Matrix,
    Method,
    Parts,
    RawSource,
    modules_of,
)
from jax_engine.weights.codes import Kind
from jax_engine.weights.rounded_source import ROUNDINGS

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


MODELOPT_FILE = "hf_quant_config.json"
# Names under which vLLM, or a checkpoint, knows a method here.
ALIASES = {
    "gptq_marlin": "gptq",
    "gptq_bitblas": "gptq",
    "awq_marlin": "awq",
    "compressed_tensors": "compressed-tensors",
    "sparseml": "compressed-tensors",
    "fbgemm_fp8": "fp8",
    "nvfp4": "modelopt_fp4",
}
METHODS: dict[str, Callable[[Mapping[str, Any], object], Method]] = {
    "gptq": gptq.method,
    "awq": lambda raw, _: awq.method(raw),
    "compressed-tensors": lambda raw, _: compressed_tensors.method(raw),
    "fp8": lambda raw, _: fp8.method(raw),
    "mxfp4": lambda raw, _: fp4.method(raw),
    "modelopt": lambda raw, _: modelopt.method(raw),
    "modelopt_fp4": lambda raw, _: modelopt.method(raw),
    "bitsandbytes": lambda raw, _: bitsandbytes.method(raw),
    "squeezellm": lambda raw, _: squeezellm.method(raw),
}


class Outer(msgspec.Struct, frozen=True):
    """Where config.json says how it is quantised."""

    quantization_config: dict[str, Any] | None = None
    compression_config: dict[str, Any] | None = None
    quantization: Any = None  # MLX's


def open_quantized(
    source: RawSource, config: Mapping[str, Any], wanted: str | None = None
) -> RawSource | QuantizedSource:
    """The source itself if the checkpoint is not quantised, or a `QuantizedSource` of it.

    Args:
        config: config.json.
        wanted: the method that the user names; None: the checkpoint's. A checkpoint that is not
            quantised can be rounded to one of ROUNDINGS, which is the caller's to do.

    Raises:
        ConfigError: the method is not known, is not the checkpoint's, or a variant is lacking.
        WeightsError: parts of a quantised matrix are missing, or of another dtype or shape.
    """
    raw = quantization_config(config, source.location)
    asked = None if wanted is None else known_method("quantization", wanted)
    if raw is None:
        if asked is None or asked in ROUNDINGS:
            return source
        raise ConfigError(
            f"quantization={wanted!r}, but the checkpoint {source.location} is not quantised: "
            "config.json has no quantization_config; known: None, or what numbers are rounded to "
            f"while they are read: {', '.join(map(repr, ('w8a8', *ROUNDINGS)))}."
        )
    found = method_of(raw)
    if asked not in (None, found) and (asked, found) != ("modelopt", "modelopt_fp4"):
        raise ConfigError(
            f"quantization={wanted!r}, but {FIELD}.quant_method of {source.location} is "
            f"{raw.get('quant_method')!r}; known: None or {found!r}."
        )
    return QuantizedSource(source, METHODS[found](raw, config.get("model_type")), found)


def quantization_config(config: Mapping[str, Any], directory: Path) -> Mapping[str, Any] | None:
    """What config.json, or ModelOpt's own file, says about weights; None: they are not quantised.

    Raises:
        ConfigError: It is no dictionary, or MLX's.
        WeightsError: The file is unreadable.
    """
    outer = checked(config, Outer, "config.json")
    found = outer.quantization_config
    _refuse_mlx(outer.quantization if found is None else found, directory)
    if not found and outer.compression_config:
        found = {"quant_method": "compressed-tensors", **outer.compression_config}
    file = directory / MODELOPT_FILE
    if not found and file.is_file():
        found = {"quant_method": "modelopt", **read_json(file)}
        if modelopt.inner(found).quant_algo is None:  # only the KV cache is
            return None
    return found or None


def _refuse_mlx(raw: Any, directory: Path) -> None:
    """Raises ConfigError for what MLX writes, which names no method."""
    if isinstance(raw, dict) and "quant_method" not in raw and raw.keys() >= {"bits", "group_size"}:
        raise ConfigError(
            f"{directory} holds codes of MLX (config.json: {short(raw['bits'])} bits in groups of "
            f"{short(raw['group_size'])}), which are not read. Take the model that they were made "
            "from, or a GGUF file of it."
        )


def method_of(raw: Mapping[str, Any]) -> str:
    """The method of a `quantization_config`, one of METHODS. Raises ConfigError."""
    found = known_method(f"{FIELD}.quant_method", raw.get("quant_method"))
    is_fp4 = found == "modelopt" and modelopt.inner(raw).quant_algo in modelopt.NVFP4
    return "modelopt_fp4" if is_fp4 else found


def known_method(field: str, value: object) -> str:
    """One of METHODS, by any of its names. Raises ConfigError."""
    name = ALIASES.get(value, value) if isinstance(value, str) else value
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigError(
            f"{field} {short(value)} is not supported; known: {', '.join((*METHODS, *ALIASES))}."
        )
    return name
