"""Kernels that read what they must not, or not what they must."""

from dataclasses import replace

import numpy as np

from paged_conformance.kernel.cases import Case
from paged_conformance.kernel.expected import Result
from paged_conformance.kernel.wrong.plain import Options, Plain


class AlwaysLayer1(Plain):
    """Layer 1 is read in all layers."""

    caught_by = "oracle-plain"

    def layer(self, case: Case) -> int:
        return min(1, len(case.kv_cache) - 1)


class AlwaysTheLastLayer(Plain):
    """The last layer is read in all layers."""

    caught_by = "any-layer"

    def layer(self, case: Case) -> int:
        return len(case.kv_cache) - 1


class UpTo512(Plain):
    """Tokens before the last 512 of a context are left out."""

    caught_by = "long-contexts-plain"

    def first(self, position: int, window: int | None) -> int:
        return max(super().first(position, window), position - 511)


class FirstOf1024(Plain):
    """Positions are taken modulo 1,024."""

    caught_by = "long-contexts-everything"

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        return super().read(case, seq, key % 1024, which)


class BeforeTheBeginning(Plain):
    """A window larger than a context begins at a negative position."""

    caught_by = "option-of-nothing-window"

    def first(self, position: int, window: int | None) -> int:
        return 0 if window is None else position - window + 1


class WholeTable(Plain):
    """All entries of a block table are followed, those past the context too."""

    caught_by = "unused-entries-all"

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        _ = case.kv_cache[case.layer, which][case.block_tables[seq]]
        return super().read(case, seq, key, which)


class WholeBlocks(Plain):
    """Slots past the context are read and weighted by zero, which hides no NaN."""

    caught_by = "unread-slots-all"

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        found = super().read(case, seq, key, which)
        past = np.arange(key[-1] + 1, -(-(key[-1] + 1) // case.block_size) * case.block_size)
        rest = super().read(case, seq, past.astype(int), which)
        return np.asarray(found + 0 * rest.sum(0))


class WholeQuantizedBlocks(WholeBlocks):
    """Slots past the context are read and weighted by zero, in 8-bit caches only."""

    caught_by = "unread-slots-8-bit"

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        right = case.kv_scales is None
        return (
            Plain.read(self, case, seq, key, which)
            if right
            else super().read(case, seq, key, which)
        )


class FullLastBlock(Plain):
    """In a decode all slots of the last block are read."""

    caught_by = "decodes-plain"

    def __call__(self, case: Case, options: Options) -> Result:
        if not case.decode_only:
            return super().__call__(case, options)
        size = case.block_size
        return super().__call__(
            replace(case, context_lens=-(-case.context_lens // size) * size), options
        )


class OwnBlocksOnly(Plain):
    """A block that two sequences share is read for the first one only."""

    caught_by = "oracle-plain"

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        found = super().read(case, seq, key, which)
        earlier = set().union(*(case.blocks_of(other) for other in range(seq)))
        mine = case.block_tables[seq, key // case.block_size]
        return np.where(np.isin(mine, list(earlier))[:, None, None], 0, found)


class SwappedScales(Plain):
    """Keys are multiplied by the values' scales, and values by the keys'."""

    caught_by = "cache-float8-e4m3fn-plain"

    def scales_of(self, which: int) -> int:
        return 1 - which


class InterleavedHeads(Plain):
    """Query head h reads KV head h % K."""

    caught_by = "repeated-heads"

    def kv_head(self, head: int, heads: int, kv_heads: int) -> int:
        return head % kv_heads


class HeadsOf64(Plain):
    """Only the first 64 numbers of a key enter the score."""

    caught_by = "shapes-of-models"

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        found = super().read(case, seq, key, which)
        if which == 0:
            found[..., 64:] = 0
        return found


class NoValues(Plain):
    """A cache of keys alone gives zeros as values."""

    caught_by = "keys-alone-plain"

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        found = super().read(case, seq, key, which)
        return found * 0 if which == 1 and case.kv_cache.shape[1] == 1 else found


class ValuesWithoutScales(Plain):
    """Values from an 8-bit cache of keys alone are not multiplied by the keys' scales."""

    caught_by = "keys-alone-int8"

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        if which == 1 and case.kv_cache.shape[1] == 1:
            case = replace(case, kv_scales=None)
        return super().read(case, seq, key, which)


class KeysTimesZero(Plain):
    """Each slot of a cache of keys alone is added as a value with weight zero."""

    caught_by = "unread-slots-keys-alone"

    def __call__(self, case: Case, options: Options) -> Result:
        out, lse = super().__call__(case, options)
        if case.kv_cache.shape[1] == 1:
            out = out + 0 * case.kv_cache.astype(np.float32).sum()
        return out, lse


class ValuesUpTo256(Plain):
    """Only the first 256 numbers of a latent are values."""

    caught_by = "latents-of-models"

    def read(self, case: Case, seq: int, key: np.ndarray, which: int) -> np.ndarray:
        found = super().read(case, seq, key, which)
        if which == 1:
            found[..., 256:] = 0
        return found
