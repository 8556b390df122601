"""Figures 6 to 9 of the paper, drawn from what the reference's block manager says."""

from reference.blocks import BlockManager
from scripts.figures.svg import PHONE, Drawing
from scripts.tutorial.word_pool import WordPool

ORDER = [0, 4, 6, 8, 2, 5, 3, 1, 7]
PROMPT = "Four score and seven years ago our"
FILL = {"A": "a", "B": "b", "A1": "a", "A2": "b"}
ROW, WORD = 26, 62


def _drawing(number: int, title: str, height: float = 0) -> Drawing:
    """The drawing of a figure of the paper; a height of zero is set later."""
    return Drawing(PHONE, height, f"{title} (the paper's Figure {number})")


def _new_pool() -> WordPool:
    return WordPool(BlockManager(4, 9, free_order=ORDER))


def _state(picture: Drawing, y: float, title: str, pool: WordPool) -> float:
    """Draw the blocks in use, one a row, then the tables; the y below them."""
    picture.text(6, y, title, anchor="start")
    y += 14
    for block, words in enumerate(pool.memory):
        holders = pool.holders(block)
        if not holders:
            continue
        picture.text(14, y + ROW / 2 - 2, str(block))
        fill = FILL[holders[0]] if len(holders) == 1 else "c"
        for i, word in enumerate(pool.filled(block, words).split()):
            empty = word == "."
            text, colour = ("", "free") if empty else (word, fill)
            picture.box(28 + WORD * i, y, WORD, ROW - 4, text, colour)
        label = " ".join(holders) + (f" (x{len(holders)})" if len(holders) > 1 else "")
        picture.text(36 + 4 * WORD, y + ROW / 2 - 2, label, anchor="start")
        y += ROW
    tables = [f"of {name}: {' '.join(map(str, pool.table(name)))}" for name in pool.texts]
    picture.text(28, y + 8, "table " + ", ".join(tables), anchor="start")
    return y + 36


def figure_6() -> Drawing:
    picture, pool = _drawing(6, "A request grows from 7 to 9 tokens"), _new_pool()
    y = 12.0
    for title, words in (
        ("the prompt: 7 tokens, 2 blocks", PROMPT),
        ("'fathers': the last slot of block 1", "fathers"),
        ("'brought': a new block", "brought"),
    ):
        pool.feed("A", words)
        y = _state(picture, y, title, pool)
    picture.height = y - 18
    return picture


def figure_7() -> Drawing:
    picture, pool = _drawing(7, "Two requests in one pool"), _new_pool()
    pool.feed("A", PROMPT + " fathers brought")
    pool.feed("B", "It was the best of times")
    picture.height = _state(picture, 12, "two requests, one pool", pool) - 18
    return picture


def figure_8() -> Drawing:
    picture, pool = _drawing(8, "A fork, and a copy on write"), _new_pool()
    pool.feed("A1", PROMPT)
    pool.fork("A1", "A2")
    y = _state(picture, 12, "after the fork: all is shared", pool)
    pool.feed("A1", "fathers")
    y = _state(picture, y, "A1 writes: block 1 is copied to 3 first", pool)
    pool.feed("A2", "mothers")
    y = _state(picture, y, "A2 writes: alone by now, in place", pool)
    picture.height = y - 18
    return picture


def _beams(picture: Drawing, y: float, title: str, pool: WordPool, fills: dict[int, str]) -> None:
    """One beam a row: its blocks, with their word; green where beams share one."""
    picture.text(6, y, title, anchor="start")
    for row, name in enumerate(pool.texts):
        top = y + 16 + 30 * row
        picture.text(2, top + 12, name, anchor="start")
        for i, block in enumerate(pool.table(name)):
            fill = "c" if pool.manager.ref_count(block) > 1 else fills.get(block, "a")
            picture.box(30 + 65 * i, top, 62, 24, f"{block} {pool.memory[block][0]}", fill)


def figure_9() -> Drawing:
    picture = _drawing(9, "Four beams, two of which die while two split", 300)
    pool = WordPool(BlockManager(1, 13, enable_prefix_caching=True))
    pool.feed("0", "Once")
    pool.fork("0", "3")
    for words in (("upon", "there"), ("a", "was")):
        pool.feed("0", words[0])
        pool.feed("3", words[1])
    pool.fork("0", "1")
    pool.fork("0", "2")
    for name, word in (("0", "hill"), ("1", "time"), ("2", "day"), ("3", "one")):
        pool.feed(name, word)
    pool.texts = {name: pool.texts[name] for name in "0123"}  # rows in the order of beams
    _beams(
        picture,
        12,
        "beams 0 to 3; green: shared; red: about to be freed",
        pool,
        dict.fromkeys((2, 4, 5, 8), "alarm"),
    )
    pool.fork("1", "1b")
    pool.fork("2", "2b")
    pool.free("0")
    pool.free("3")
    for name, word in (("1", ","), ("1b", "there"), ("2", "in"), ("2b", "the")):
        pool.feed(name, word)
    pool.texts = {name: pool.texts[name] for name in ("1", "1b", "2", "2b")}
    _beams(picture, 164, "their heirs; at the end: new", pool, dict.fromkeys((9, 10, 11, 12), "b"))
    return picture


def draw() -> dict[str, Drawing]:
    return {
        "figure-6": figure_6(),
        "figure-7": figure_7(),
        "figure-8": figure_8(),
        "figure-9": figure_9(),
    }
