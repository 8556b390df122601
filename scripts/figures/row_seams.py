"""A row of a step without drafts, and one with three."""

from scripts.figures.svg import Drawing

SIZE = 15


def draw() -> dict[str, Drawing]:
    picture = Drawing(450, 214, "A row without drafts has one token, one with three has four")
    rows = (
        ("a plain decode: one new token", ["the", "cat", "sat", "on"], 1, 0),
        ("with three drafts", ["the", "cat", "sat", "on", "the", "mat", "."], 1, 3),
    )
    for row, (name, words, new, drafts) in enumerate(rows):
        y = 14 + row * 92
        picture.text(20, y, name, anchor="start", size=SIZE)
        old = len(words) - new - drafts
        for i, word in enumerate(words):
            fill = "free" if i < old else "a" if i < old + new else "b"
            picture.box(20 + i * 58, y + 16, 58, 30, word, fill, SIZE)
    for i, (name, fill) in enumerate((("in the cache", "free"), ("new", "a"), ("drafts", "b"))):
        picture.box(20 + i * 140, 184, 16, 16, fill=fill)
        picture.text(42 + i * 140, 193, name, anchor="start", size=SIZE)
    return {"row-seams": picture}
