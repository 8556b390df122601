"""A LoRA adapter as an immutable value (Hu et al., 2021): W x becomes W x + s B (A x).

Its name is the digest of what it computes. A reload of changed files is another adapter, and two
names of the same weights are one: caches that are keyed by the digest are never stale.
"""

import hashlib
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from jax_engine.errors import WeightsError


@dataclass(frozen=True, eq=False)
class AdaptedModule:
    """What an adapter adds to the product of one module of the model.

    The arrays are copies that nobody can write to.

    Attributes:
        name: the module's name in the checkpoint: "model.layers.0.self_attn.q_proj".
        a: A. `in` is the vocabulary for an embedding, whose tokens are taken as unit vectors.
        b: B. `out` is the model's width for an embedding.
        scaling: s.
        bias: added to B (A x) before it is scaled (PEFT's `lora_bias`); None: nothing is.
    """

    name: str
    a: Float[np.ndarray, "r in"] = field(repr=False)
    b: Float[np.ndarray, "out r"] = field(repr=False)
    scaling: float
    bias: Float[np.ndarray, " out"] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("a", "b", "bias"):
            array = getattr(self, name)
            if array is not None:
                object.__setattr__(self, name, _frozen(array))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as bytes: arrays that are pickled come back writable."""
        packed = [None if one is None else _packed(one) for one in (self.a, self.b, self.bias)]
        return _module, (self.name, self.scaling, *packed)

    @property
    def rank(self) -> int:
        """r."""
        return len(self.a)

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """A, B and the bias, if there is one."""
        return (self.a, self.b) if self.bias is None else (self.a, self.b, self.bias)


@dataclass(frozen=True, eq=False)
class Adapter:
    """An adapter's modules in the order of their names.

    Adapters are equal if their digests are: by weights, dtypes and scaling, not by where they came
    from.

    Attributes:
        digest: SHA-256 over the modules' own, in hex; each is over the module's name, scaling,
            dtypes, shapes and numbers. Many processors have instructions for it.

    Raises:
        WeightsError: there is no module, or one twice.
    """

    modules: tuple[AdaptedModule, ...]
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        modules = tuple(sorted(self.modules, key=lambda one: one.name))
        names = [one.name for one in modules]
        if not names or len(set(names)) < len(names):
            twice = next((name for name in names if names.count(name) > 1), "")
            raise WeightsError(f"an adapter has {f'{twice} twice' if twice else 'no modules'}.")
        object.__setattr__(self, "modules", modules)
        object.__setattr__(self, "digest", _digest(modules))

    def __reduce__(self) -> tuple[Any, ...]:
        """With its digest, which takes as long to make as its weights are large."""
        return _adapter, (self.modules, self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Adapter) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def rank(self) -> int:
        """The largest rank of its modules: what a slot must hold."""
        return max(one.rank for one in self.modules)

    @property
    def num_bytes(self) -> int:
        return sum(one.num_bytes for one in self.modules)


type Packed = tuple[bytes, np.dtype, tuple[int, ...]]


def _packed(array: np.ndarray) -> Packed:
    return array.tobytes(), array.dtype, array.shape


def _unpacked(data: bytes, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """An array over these bytes, which nobody can write to."""
    return np.frombuffer(data, np.uint8).view(dtype).reshape(shape)


def _module(name: str, scaling: float, a: Packed, b: Packed, bias: Packed | None) -> AdaptedModule:
    """What was pickled, without a copy."""
    made = object.__new__(AdaptedModule)
    parts = {"a": _unpacked(*a), "b": _unpacked(*b), "bias": bias and _unpacked(*bias)}
    vars(made).update(name=name, scaling=scaling, **parts)
    return made


def _adapter(modules: tuple[AdaptedModule, ...], digest: str) -> Adapter:
    """What was pickled, without making its digest anew."""
    made = object.__new__(Adapter)
    vars(made).update(modules=modules, digest=digest)
    return made


def _frozen(array: np.ndarray) -> np.ndarray:
    """A copy in C order, over bytes: not even its flags make it writable."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return _unpacked(native.tobytes(), native.dtype, array.shape)


def _digest(modules: tuple[AdaptedModule, ...]) -> str:
    """SHA-256 over the modules' own digests, which cores share among them."""
    workers = min(len(modules), os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        shares = pool.map(_digests, [modules[i::workers] for i in range(workers)])
    each: list[bytes] = [b""] * len(modules)
    for i, share in enumerate(shares):
        each[i::workers] = share
    return hashlib.sha256(b"".join(each)).hexdigest()


def _digests(modules: tuple[AdaptedModule, ...]) -> list[bytes]:
    return [_module_digest(one) for one in modules]


def _module_digest(one: AdaptedModule) -> bytes:
    """Each part after its length, so that different parts never make the same bytes."""
    digest = hashlib.sha256()
    _add(digest, one.name.encode())
    digest.update(struct.pack("<d", one.scaling))
    digest.update(struct.pack("<B", len(one.arrays)))
    for array in one.arrays:
        _add(digest, array.dtype.name.encode())
        digest.update(struct.pack(f"<B{array.ndim}Q", array.ndim, *array.shape))
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.digest()


def _add(digest: "hashlib._Hash", part: bytes) -> None:
    digest.update(struct.pack("<Q", len(part)))
    digest.update(part)
