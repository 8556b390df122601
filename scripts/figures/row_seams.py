"""A row of a step: what it has today, and what speculation would add."""

from scripts.figures.svg import Drawing

SIZE = 15


def draw() -> dict[str, Drawing]:
    picture = Drawing(450, 214, "Today a row computes its last token; with guesses it checks four")
    rows = (
        ("today: one new token", ["the", "cat", "sat", "on"], 1, 0),
        ("speculation: three guesses", ["the", "cat", "sat", "on", "the", "mat", "."], 1, 3),
    )
    for row, (name, words, new, drafts) in enumerate(rows):
        y = 14 + row * 92
        picture.text(20, y, name, anchor="start", size=SIZE)
        old = len(words) - new - drafts
        for i, word in enumerate(words):
            fill = "free" if i < old else "a" if i < old + new else "b"
            picture.box(20 + i * 58, y + 16, 58, 30, word, fill, SIZE)
    for i, (name, fill) in enumerate((("in the cache", "free"), ("new", "a"), ("guessed", "b"))):
        picture.box(20 + i * 140, 184, 16, 16, fill=fill)
        picture.text(42 + i * 140, 193, name, anchor="start", size=SIZE)
    return {"row-seams": picture}
