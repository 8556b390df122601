"""What a paged attention is given: ragged queries, tables, and a pool with slots not to be seen."""

from scripts.figures.svg import Drawing

TABLES, LENS, POOL, BLOCK = [[4, 1, 3], [0, 5, 9]], [5, 3], 6, 2
FILLS = ["a", "b"]


def draw() -> dict[str, Drawing]:
    picture = Drawing(640, 250, "Queries, block tables, and the pool that they lead to")
    picture.text(80, 14, "queries")
    for t, (seq, position) in enumerate([(0, 4), (1, 0), (1, 1), (1, 2)]):
        picture.box(20, 26 + t * 40, 120, 30, f"sequence {seq}, at {position}", FILLS[seq])
    picture.box(20, 186, 120, 30, "padding")
    picture.text(300, 14, "block tables")
    for seq, table in enumerate(TABLES):
        used = -(-LENS[seq] // BLOCK)
        for i, entry in enumerate(table):
            fill = FILLS[seq] if i < used else "alarm"
            picture.box(240 + i * 42, 40 + seq * 80, 38, 30, str(entry), fill)
        picture.text(300, 82 + seq * 80, f"context {LENS[seq]}", size=11)
    picture.arrow(142, 41, 236, 54)
    for t in (1, 2, 3):
        picture.arrow(142, 41 + t * 40, 236, 134)
    picture.text(500, 14, "pool: two slots a block")
    owner = {
        (table[p // BLOCK], p % BLOCK): (seq, p)
        for seq, table in enumerate(TABLES)
        for p in range(LENS[seq])
    }
    for block in range(POOL):
        y = 26 + block * 36
        picture.text(436, y + 14, str(block), size=11)
        for slot in range(BLOCK):
            mine = owner.get((block, slot))
            label = f"{mine[0]} at {mine[1]}" if mine else "NaN"
            picture.box(450 + slot * 64, y, 60, 28, label, FILLS[mine[0]] if mine else "alarm")
    return {"kernel-call": picture}
