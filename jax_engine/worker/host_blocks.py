"""§4.5, swap space: the contents of blocks that were swapped out, in the host's memory.

The space is allocated in pieces. Each piece is allocated when one of its blocks is first needed:
most engines never swap, and the whole space may exceed the address limit of `ulimit -v`.
"""

import logging
from collections.abc import Iterable, Sequence

import numpy as np

from jax_engine.errors import OutOfMemoryError
from jax_engine.host_memory import allocating, check_fits

logger = logging.getLogger("jax_engine")
PIECE_BYTES = 64 << 20
HEADROOM_BYTES = 256 << 20  # kept free for the rest of the process under an address limit


class HostBlocks:
    """Blocks 0 .. num_blocks - 1 in host memory. Each holds what was last written to it.

    Args:
        block_shape: The shape of one block, [L, kv, K, B, D].
    """

    def __init__(self, num_blocks: int, block_shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.block_shape, self.dtype = block_shape, dtype
        self._num_blocks = num_blocks
        block_bytes = int(np.prod(block_shape)) * dtype.itemsize
        self._per_piece = max(1, PIECE_BYTES // block_bytes)
        self._piece_bytes = self._per_piece * block_bytes
        self._pieces: dict[int, np.ndarray] = {}
        self._says_full = True

    def __len__(self) -> int:
        return self._num_blocks

    @property
    def num_bytes(self) -> int:
        """Bytes of the pieces allocated so far."""
        return sum(piece.nbytes for piece in self._pieces.values())

    def make_room(self, blocks: Iterable[int]) -> bool:
        """Allocates the pieces of these blocks. Returns False if memory runs out."""
        try:
            for block in blocks:
                self._piece(block)
        except OutOfMemoryError as error:
            if self._says_full:  # log this once, not at every attempt
                self._says_full = False
                logger.warning("%s What is preempted is computed again.", error)
            return False
        return True

    def read(self, blocks: Sequence[int]) -> np.ndarray:
        """Copies of the blocks, [n, L, kv, K, B, D]."""
        out = np.empty((len(blocks), *self.block_shape), self.dtype)
        for copy, block in zip(out, blocks, strict=True):
            copy[...] = self._piece(block)[block % self._per_piece]
        return out

    def write(self, blocks: Sequence[int], data: np.ndarray) -> None:
        """Fills the blocks from [n, L, kv, K, B, D]. Raises OutOfMemoryError."""
        for block, values in zip(blocks, data, strict=True):
            self._piece(block)[block % self._per_piece] = values

    def _piece(self, block: int) -> np.ndarray:
        index = block // self._per_piece
        piece = self._pieces.get(index)
        if piece is None:
            check_fits("swapped blocks and what must stay free", self._needed_bytes())
            with allocating("swapped blocks", self._piece_bytes):
                piece = np.empty((self._per_piece, *self.block_shape), self.dtype)
            self._pieces[index] = piece
        return piece

    def _needed_bytes(self) -> int:
        return self._piece_bytes + HEADROOM_BYTES
