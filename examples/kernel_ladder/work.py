"""What each rung asks of a GPU, counted: bytes moved, and programs that move them.

Not measured: a count says which rung must win where, a device says by how much.
"""

from dataclasses import dataclass

from examples.kernel_ladder.split import SPLITS

BYTES = 2  # of a number in bfloat16


@dataclass(frozen=True)
class Shape:
    """One decode step: equal contexts, tables as wide as the longest context there may be."""

    seqs: int
    context: int
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    longest: int = 131072

    @property
    def read_once(self) -> int:
        """Bytes of all keys and values that are seen: the least that can be read."""
        return self.seqs * self.context * self.kv_heads * self.dim * 2 * BYTES


SHAPES = (Shape(seqs=1, context=65536), Shape(seqs=64, context=4096))


@dataclass(frozen=True)
class Work:
    """Bytes read and written, and independent programs (0: XLA decides)."""

    moved: int
    programs: int


def work(rung: str, shape: Shape) -> Work:
    """The work of a rung by its name."""
    once = shape.read_once
    partials = SPLITS * shape.seqs * shape.heads * (shape.dim + 1) * 4 * 2  # written, then read
    group = shape.heads // shape.kv_heads
    counts = {
        # The whole width of the table is read, written side by side, and read again.
        "gather_and_softmax": Work(3 * once * shape.longest // shape.context, 0),
        # A block at a time is gathered, and read again.
        "online_softmax": Work(3 * once, 0),
        "one_program_a_head": Work(group * once, shape.seqs * shape.heads),
        "shared_pages": Work(once, shape.seqs * shape.kv_heads),
        "wide_steps": Work(once, shape.seqs * shape.kv_heads),
        "split_context": Work(once + partials, shape.seqs * shape.kv_heads * SPLITS),
    }
    return counts[rung]
