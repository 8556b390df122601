"""What three samples of a prompt share, from the tables that the reference's scheduler made."""

from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from scripts.figures.svg import PHONE, Drawing
from scripts.tutorial.stepping import request, step


def draw() -> dict[str, Drawing]:
    scheduler = Scheduler(
        BlockManager(4, 20), max_num_seqs=8, max_num_batched_tokens=16, max_model_len=16
    )
    group = request("A", 6, 8, n=3)
    scheduler.add_group(group)
    copies = {target for _ in range(5) for _, target in step(scheduler).blocks_to_copy}
    blocks = scheduler.block_manager
    picture = Drawing(PHONE, 156, "Three samples share the full block of their prompt")
    titles = ("positions 0-3", "4-7", "8-11")
    for column, title in enumerate(titles):
        picture.text(114 + 96 * column, 10, title)
    for row, seq in enumerate(group.unfinished):
        y = 24 + 32 * row
        picture.text(2, y + 12, f"sample {row}", anchor="start")
        for column, block in enumerate(blocks.block_table(seq.seq_id)):
            fill = "c" if blocks.ref_count(block) > 1 else ("b" if block in copies else "a")
            picture.box(68 + 96 * column, y, 92, 24, f"block {block}", fill)
    y = 132
    for x, name, fill in ((6, "shared", "c"), (96, "a copy of block 18", "b"), (246, "own", "a")):
        picture.box(x, y, 14, 14, fill=fill)
        picture.text(x + 20, y + 7, name, anchor="start")
    return {"sharing": picture}
