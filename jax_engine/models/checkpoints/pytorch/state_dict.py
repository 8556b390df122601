"""The names that a pickle of tensors has, and what they make.

A tensor is a view of a storage: where it begins, its shape and its strides, all counted in numbers.
A storage is data outside of the pickle, which names it by a key. Several tensors may share one, as
tied weights do. What is made here is checked, and holds no numbers.
"""

import math
from typing import NamedTuple

from jax_engine.models.checkpoints.pytorch.pickle_reader import Function, checked_key
from jax_engine.models.checkpoints.stored_dtypes import DTYPES

# The dtypes of storages, and of tensors, under the names that safetensors has for them.
_TYPED = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}
_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}
_UNTYPED = "U8"  # a storage of bytes: its tensors name their dtype
_MAX_AXES = 16
_MAX_NUMBERS = 1 << 48


class StorageType(NamedTuple):
    """A class of storages. `dtype` is None for one of bytes, whose tensors name their dtype."""

    dtype: str | None


class DType(NamedTuple):
    """A dtype of PyTorch, under its name in safetensors."""

    name: str


class Storage(NamedTuple):
    """Data outside of the pickle.

    Attributes:
        key: names the data.
        dtype: None: bytes.
        size: how many numbers it has.
    """

    key: str
    dtype: str | None
    size: int

    @property
    def num_bytes(self) -> int:
        return self.size * DTYPES[self.dtype or _UNTYPED].itemsize


class StoredTensor(NamedTuple):
    """A view of a storage. `offset` and `strides` are counted in numbers of `dtype`."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def storage_of(found: object) -> Storage:
    """The storage that a persistent id names. Raises ValueError for an id of another kind."""
    if type(found) is not tuple or len(found) not in (5, 6) or found[0] != "storage":
        raise ValueError("its pickle has a persistent id that names no storage, which is refused")
    kind, key, size = found[1], found[2], found[4]
    if len(found) == 6 and found[5] is not None:
        raise ValueError("its pickle has a view of a storage: save the file again with PyTorch")
    if type(kind) is not StorageType or type(key) is not str or not _is_count(size):
        raise ValueError("its pickle has a persistent id of a wrong form, which is refused")
    return Storage(key, kind.dtype, size)


def _tensor(
    storage: object, offset: object, shape: object, strides: object, *others: object
) -> StoredTensor:
    """`_rebuild_tensor` and `_rebuild_tensor_v2`; the others say how it is trained."""
    if type(storage) is not Storage or storage.dtype is None:
        raise ValueError("its pickle has a tensor without a storage of numbers, which is refused")
    return _view(storage, storage.dtype, offset, shape, strides)


def _tensor_with_dtype(
    storage: object,
    offset: object,
    shape: object,
    strides: object,
    requires_grad: object,
    hooks: object,
    dtype: object,
    *others: object,
) -> StoredTensor:
    """`_rebuild_tensor_v3`, of dtypes that have no storage of their own."""
    if type(storage) is not Storage or type(dtype) is not DType:
        raise ValueError("its pickle has a tensor without a storage or a dtype, which is refused")
    return _view(storage, dtype.name, offset, shape, strides)


def _view(
    storage: Storage, dtype: str, offset: object, shape: object, strides: object
) -> StoredTensor:
    if not (_is_count(offset) and _are_counts(shape) and _are_counts(strides)):
        raise ValueError(
            "its pickle has a tensor whose offset, sizes or strides are not numbers >= 0"
        )
    assert isinstance(offset, int) and isinstance(shape, tuple) and isinstance(strides, tuple)
    if len(shape) != len(strides) or len(shape) > _MAX_AXES or math.prod(shape) > _MAX_NUMBERS:
        raise ValueError(
            f"its pickle has a tensor of {len(shape)} sizes and {len(strides)} strides; expected "
            f"as many, at most {_MAX_AXES}, and at most 2^48 numbers"
        )
    steps = zip(shape, strides, strict=True)
    end = offset + sum((size - 1) * stride for size, stride in steps) + 1 if all(shape) else 0
    held = storage.num_bytes // DTYPES[dtype].itemsize
    if end > held:
        raise ValueError(
            f"its pickle has a tensor of shape {shape} that ends at number {end} of storage "
            f"{storage.key[:40]!r}, which has {held}"
        )
    return StoredTensor(storage, dtype, offset, shape, strides)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_NUMBERS


def _are_counts(values: object) -> bool:
    return type(values) is tuple and all(map(_is_count, values))


def _parameter(data: object, *others: object) -> StoredTensor:
    if type(data) is not StoredTensor:
        raise ValueError("its pickle has a parameter that is no tensor, which is refused")
    return data


def _dictionary(*arguments: object) -> dict[object, object]:
    """`OrderedDict`, empty or of pairs."""
    if not arguments:
        return {}
    pairs = arguments[0]
    if type(pairs) is not list:
        raise ValueError("its pickle has a dictionary of a wrong form, which is refused")
    found = dict[object, object]()
    for pair in pairs:
        if type(pair) not in (list, tuple) or len(pair) != 2:
            raise ValueError("its pickle has a dictionary of a wrong form, which is refused")
        found[checked_key(pair[0])] = pair[1]
    return found


def _size(given: object) -> tuple[object, ...]:
    """`torch.Size`."""
    if not isinstance(given, list | tuple):
        raise ValueError("its pickle has a size of a wrong form, which is refused")
    return tuple(given)


NAMES: dict[str, object] = {
    "collections.OrderedDict": Function(_dictionary, (0, 1)),
    "torch._utils._rebuild_tensor": Function(_tensor, (4,)),
    "torch._utils._rebuild_tensor_v2": Function(_tensor, (6, 7)),
    "torch._utils._rebuild_tensor_v3": Function(_tensor_with_dtype, (7, 8)),
    "torch._utils._rebuild_parameter": Function(_parameter, (3,)),
    "torch.Size": Function(_size, (1,)),
    "torch.storage.UntypedStorage": StorageType(None),
    **{f"torch.{name}": StorageType(dtype) for name, dtype in _TYPED.items()},
    **{f"torch.{name}": DType(dtype) for name, dtype in _DTYPES.items()},
}
