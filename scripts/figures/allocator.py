"""Four blocks, their counts and the free list, after each operation of the allocator."""

from reference.allocator import BlockAllocator
from scripts.figures.svg import PHONE, Drawing

OPERATIONS = ["start", "allocate", "allocate", "touch 3", "free 3", "free 2", "free 3"]
FILLS = ["free", "a", "c"]


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 252, "An allocator of four blocks, operation by operation")
    picture.text(164, 10, "counts of blocks 0 to 3")
    picture.text(301, 10, "free list")
    pool = BlockAllocator("gpu", 4)
    for row, operation in enumerate(OPERATIONS):
        name, *block = operation.split()
        if name != "start":
            getattr(pool, name)(*map(int, block))
        y = 24 + 32 * row
        picture.text(6, y + 12, operation, anchor="start")
        for i, count in enumerate(pool.ref_counts):
            picture.box(101 + 32 * i, y, 30, 24, str(count), FILLS[count])
        for i, free in enumerate(pool.free_blocks):
            picture.box(250 + 26 * i, y, 24, 24, str(free))
    return {"allocator": picture}
