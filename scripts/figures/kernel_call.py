"""What a paged attention is given: ragged queries, tables, and a pool with slots not to be seen."""

from scripts.figures.svg import PHONE, Drawing

TABLES, LENS, POOL, BLOCK = [[4, 1, 3], [0, 5, 9]], [5, 3], 6, 2
FILLS = ["a", "b"]


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 250, "Queries, block tables, and the pool that they lead to")
    picture.text(52, 14, "queries")
    for t, (seq, position) in enumerate([(0, 4), (1, 0), (1, 1), (1, 2)]):
        picture.box(1, 26 + t * 40, 102, 30, f"seq {seq}, at {position}", FILLS[seq])
    picture.box(1, 186, 102, 30, "padding")
    picture.text(180, 14, "block tables")
    for seq, table in enumerate(TABLES):
        used = -(-LENS[seq] // BLOCK)
        for i, entry in enumerate(table):
            fill = FILLS[seq] if i < used else "alarm"
            picture.box(134 + i * 31, 40 + seq * 80, 29, 30, str(entry), fill)
        picture.text(180, 82 + seq * 80, f"context {LENS[seq]}")
    picture.arrow(105, 41, 132, 54)
    for t in (1, 2, 3):
        picture.arrow(105, 41 + t * 40, 132, 134)
    picture.text(304, 14, "pool, 2 slots each")
    owner = {
        (table[p // BLOCK], p % BLOCK): (seq, p)
        for seq, table in enumerate(TABLES)
        for p in range(LENS[seq])
    }
    for block in range(POOL):
        y = 26 + block * 36
        picture.text(251, y + 14, str(block))
        for slot in range(BLOCK):
            mine = owner.get((block, slot))
            label = f"{mine[0]} at {mine[1]}" if mine else "NaN"
            picture.box(262 + slot * 48, y, 46, 28, label, FILLS[mine[0]] if mine else "alarm")
    return {"kernel-call": picture}
