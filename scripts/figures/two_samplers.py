"""The sampler row by row, and over all rows: which part of the logits a call touches."""

from scripts.figures.svg import Drawing

SIZE, CELL = 15, 26
WEIGHTS = (16, 8, 4, 2, 1, 1)
ROWS = (("greedy", 1), ("top-k 3", 3), ("top-p 0.8", 3), ("no filter", 6))
RULES = ("scale", "threshold", "cut", "sum")


def draw() -> dict[str, Drawing]:
    picture = Drawing(450, 300, "Row by row, and rule by rule over all rows")
    picture.text(20, 16, "row by row: a call for each row", anchor="start", size=SIZE)
    for row, (name, kept) in enumerate(ROWS):
        y = 34 + row * 34
        for i, weight in enumerate(WEIGHTS):
            fill = "abcd"[row] if i < kept else "free"
            picture.box(110 + i * CELL, y, CELL, 26, str(weight), fill, SIZE)
        picture.text(102, y + 13, name, anchor="end", size=SIZE)
        picture.arrow(272, y + 13, 300, y + 13)
        picture.text(308, y + 13, "a token", anchor="start", size=SIZE)
    picture.text(20, 188, "all at once: a call for each rule", anchor="start", size=SIZE)
    for step, rule in enumerate(RULES):
        x = 30 + step * 108
        for row in range(4):
            for i in range(6):
                kept = i < ROWS[row][1] or step < 2
                picture.box(x + i * 13, 206 + row * 13, 13, 13, fill="a" if kept else "free")
        picture.text(x + 39, 276, rule, size=SIZE)
        if step < len(RULES) - 1:
            picture.arrow(x + 82, 232, x + 104, 232)
    return {"two-samplers": picture}
