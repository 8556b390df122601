"""The KV cache: one array of blocks on the device, one on the host.

Section 4.2: "the KV cache is organised as fixed-size KV blocks, like pages in virtual memory".
Section 4.5: blocks of a preempted sequence may be swapped to the memory of the host and back.

A *slot* is the place of one token: block * B + offset. Position p of a sequence with the block
table `table` has the slot `table[p // B] * B + p % B`.

A cache may hold each number in 8 bits instead. A key or value is divided by its head's *scale* when
it is written and multiplied by it when it is read (`reference.attention.dequantize`): `quantize`.

The order of a step is part of the definition, since a block that one line frees another may use:
swap in, swap out, copy (`begin_step`), then in each layer write, and only then attend.

Legend: L layers, N blocks in the pool, K KV heads, B block size, D head dim, T tokens in the step.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import DTypeLike

from reference.quantization.small_floats import E4M3, nearest

BlockPairs = Sequence[tuple[int, int]]


def slot_of(block_table: Sequence[int], position: int, block_size: int) -> int:
    """The slot of a position.

    Figure 6 of the paper: "Four score and seven years ago our", B = 4, logical block 0 in physical
    block 7 and 1 in 1. The eighth token, "fathers", at position 7, fills the last slot of block 1:

    >>> slot_of([7, 1], 7, block_size=4)
    7
    >>> [slot_of([7, 1], p, block_size=4) for p in range(7)]
    [28, 29, 30, 31, 4, 5, 6]
    """
    return block_table[position // block_size] * block_size + position % block_size


def quantize(
    x: Float[np.ndarray, "K D"], scales: Float[np.ndarray, "K"], kind: str
) -> Float[np.ndarray, "K D"]:
    """The 8-bit numbers nearest to a token's keys or values over the scales of their heads.

    They are integers ("int8") or floats of the form E4M3 ("fp8"). What lies beyond the largest of
    them becomes that one. They are returned as floats, which can hold them all.

    >>> x, scales = np.array([[2.6, -300.0], [5.0, 0.0]], np.float32), np.array([1, 2], np.float32)
    >>> quantize(x, scales, "int8").tolist()
    [[3.0, -128.0], [2.0, 0.0]]
    >>> quantize(x * 2, scales, "fp8").tolist()
    [[5.0, -448.0], [5.0, 0.0]]
    """
    quotient = np.asarray(x / scales[:, None], np.float32)
    if kind == "int8":
        return np.asarray(np.clip(np.rint(quotient), -128, 127))
    return np.asarray(E4M3[nearest(quotient, E4M3)])


class KVCache:
    """Keys and values of all layers: `gpu` and `cpu`, each [L, 2, N, K, B, D] (0 keys, 1 values).

    With `values_in_keys` they are [L, 1, N, K, B, D]: a value can be made of its key (see
    `reference.latent_attention`), so that keys alone are stored.

    With `scales` it is a cache of 8-bit numbers of this `kind`; see `quantize`. They are kept as
    floats.

    Every slot starts as not-a-number. Whoever reads a slot that nobody wrote finds out.

    >>> cache = KVCache(
    ...     num_layers=1, num_blocks=2, num_kv_heads=1, block_size=2, head_dim=1, num_cpu_blocks=1
    ... )
    >>> kv = np.array([[[5.0]], [[6.0]]], dtype=np.float32)       # two tokens, [T, K, D]
    >>> cache.write(0, kv, kv, np.array([3, -1]))                 # the second one goes nowhere
    >>> cache.gpu[0, 0, :, 0, :, 0].tolist()
    [[nan, nan], [nan, 5.0]]
    >>> cache.begin_step(swap_in=[], swap_out=[(1, 0)], copies=[(1, 0)])
    >>> cache.cpu[0, 0, 0, 0, :, 0].tolist(), cache.gpu[0, 0, 0, 0, :, 0].tolist()
    ([nan, 5.0], [nan, 5.0])
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        num_kv_heads: int,
        block_size: int,
        head_dim: int,
        num_cpu_blocks: int = 0,
        values_in_keys: bool = False,
        dtype: DTypeLike = np.float32,
        scales: Float[np.ndarray, "L kv K"] | None = None,
        kind: str = "int8",
    ) -> None:
        self.block_size = block_size
        self.scales, self.kind = scales, kind
        kinds = 1 if values_in_keys else 2
        block = (num_kv_heads, block_size, head_dim)
        self.gpu = np.full((num_layers, kinds, num_blocks, *block), np.nan, dtype=dtype)
        self.cpu = np.full((num_layers, kinds, num_cpu_blocks, *block), np.nan, dtype=dtype)

    def begin_step(self, swap_in: BlockPairs, swap_out: BlockPairs, copies: BlockPairs) -> None:
        """What the scheduler asks for before the model runs, in the order of the step."""
        self.swap_in(swap_in)
        self.swap_out(swap_out)
        self.copy(copies)

    def swap_in(self, pairs: BlockPairs) -> None:
        """Host to device: pairs of (cpu block, gpu block), all layers."""
        _move(self.cpu, self.gpu, pairs)

    def swap_out(self, pairs: BlockPairs) -> None:
        """Device to host: pairs of (gpu block, cpu block), all layers."""
        _move(self.gpu, self.cpu, pairs)

    def copy(self, pairs: BlockPairs) -> None:
        """Within the device: pairs of (source, destination), for copy-on-write (section 4.4)."""
        _move(self.gpu, self.gpu, pairs)

    def write(
        self,
        layer: int,
        k: Float[np.ndarray, "T K D"],
        v: Float[np.ndarray, "T K D"] | None,
        slot_mapping: Int[np.ndarray, "T"],
    ) -> None:
        """Store the new keys and values of one layer, token t at `slot_mapping[t]`.

        Slot -1 means nowhere. `v` is None in a cache of keys alone. Raises IndexError for any other
        slot outside of the pool, before anything is written.
        """
        num_slots = self.gpu.shape[2] * self.block_size
        for slot in slot_mapping:
            if not -1 <= slot < num_slots:
                raise IndexError(f"slot {slot} is not -1 nor one of 0..{num_slots - 1}")
        for t, slot in enumerate(slot_mapping):
            if slot >= 0:
                block, offset = divmod(int(slot), self.block_size)
                self.gpu[layer, 0, block, :, offset] = self._stored(layer, 0, k[t])
                if v is not None:
                    self.gpu[layer, 1, block, :, offset] = self._stored(layer, 1, v[t])

    def _stored(
        self, layer: int, which: int, x: Float[np.ndarray, "K D"]
    ) -> Float[np.ndarray, "K D"]:
        return x if self.scales is None else quantize(x, self.scales[layer, which], self.kind)


def _move(
    source: Float[np.ndarray, "L kv _ K B D"],
    target: Float[np.ndarray, "L kv _ K B D"],
    pairs: BlockPairs,
) -> None:
    """target[dst] = source[src] for each (src, dst); all are read before any is written.

    Raises IndexError for a block outside of its pool, before anything is moved.
    """
    for src, dst in pairs:
        if not (0 <= src < source.shape[2] and 0 <= dst < target.shape[2]):
            raise IndexError(
                f"cannot move block {src} to {dst}: the pools have "
                f"{source.shape[2]} and {target.shape[2]} blocks"
            )
    contents = [source[:, :, src].copy() for src, _ in pairs]
    for (_, dst), content in zip(pairs, contents, strict=True):
        target[:, :, dst] = content
