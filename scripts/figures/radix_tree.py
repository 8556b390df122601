"""Three prompts in a radix tree, and the same prompts in a chain of blocks of four."""

from scripts.figures.svg import Drawing
from scripts.tutorial.radix_tree import Node, RadixTree

PROMPTS = (
    "You are a poet. Write of rain.",
    "You are a poet. Write of snow.",
    "You are a pilot. Land.",
)
SIZE, LETTER, GAP = 15, 8.2, 30


def tree() -> RadixTree:
    found = RadixTree()
    for text in PROMPTS:
        found.insert(list(map(ord, text)), [0] * len(text))
    return found


def draw() -> dict[str, Drawing]:
    picture = Drawing(450, 290, "A radix tree of three prompts, and their chains of blocks")
    picture.text(20, 16, "a radix tree: five runs of tokens", anchor="start", size=SIZE)
    _edges(picture, tree().root, 20.0, 36.0)
    picture.text(20, 172, "hash chains, B = 4: a box is a block", anchor="start", size=SIZE)
    known: dict[str, str] = {}
    for row, (text, fill) in enumerate(zip(PROMPTS, "abc", strict=True)):
        for at in range(0, len(text), 4):
            piece = text[at : at + 4]
            full = len(piece) == 4
            owner = known.setdefault(text[: at + 4], fill) if full else "free"
            picture.box(20 + at * 13.6, 188 + row * 32, 13.6 * len(piece), 26, piece, owner, SIZE)
    return {"radix-tree": picture}


def _edges(picture: Drawing, node: Node, x: float, y: float) -> float:
    """Draws the edges below a node; the first free height under them."""
    top = y
    for child in node.children.values():
        text = "".join(map(chr, child.tokens))
        wide = LETTER * len(text) + 12
        if node.tokens:
            picture.line([(x - GAP, top + 14), (x, y + 14)])
        picture.box(x, y, wide, 28, text.strip(), "a" if child.children else "b", SIZE)
        y = max(_edges(picture, child, x + wide + GAP, y), y + 38)
    return y
