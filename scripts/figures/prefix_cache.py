"""Prefix caching: the chain of hashes, and a pool of six blocks through four requests.

The states of the pool are those of the oracle's block manager.
"""

from reference.blocks import BlockManager
from scripts.figures.svg import PHONE, Drawing

BLOCK_SIZE, POOL = 4, 6


def draw() -> dict[str, Drawing]:
    return {"prefix-chain": draw_chain(), "prefix-queue": draw_queue()}


def draw_chain() -> Drawing:
    """Two prompts that share their first block, with the toy hashes of the page."""
    picture = Drawing(
        PHONE, 170, "Each block's hash is made of the hash before it and its own tokens"
    )
    places = {
        "ABCD": (2, 70, 10, "a"),
        "EFGH": (127, 20, 126, "a"),
        "EFXY": (127, 120, 160, "b"),
    }
    for letters, (x, y, number, fill) in places.items():
        picture.row(x, y, 26, 26, list(letters), fill=fill)
        picture.text(x + 52, y + 38, f"hash {number}")
    picture.row(252, 20, 26, 26, ["I", "J", "", ""])
    picture.text(304, 58, "not full: no hash")
    picture.row(252, 120, 26, 26, ["Z", "", "", ""])
    picture.arrow(107, 78, 126, 40)
    picture.arrow(107, 88, 126, 126)
    picture.arrow(232, 33, 251, 33)
    picture.arrow(232, 133, 251, 133)
    return picture


def history() -> list[tuple[str, list[tuple[str, str]], list[int]]]:
    """After each event: its name, (content, colour) of each block, and the free queue."""
    manager = BlockManager(BLOCK_SIZE, POOL, enable_prefix_caching=True, watermark=0.0)
    shown = [("", "free")] * POOL
    states = []

    def note(event: str) -> None:
        states.append((event, list(shown), list(manager.gpu.free_blocks)))

    def admit(name: int, text: str, fill: str) -> None:
        prompt = [ord(letter) for letter in text]
        hits = manager.cached_blocks(prompt)
        start = BLOCK_SIZE * len(hits)
        manager.allocate_slots(name, prompt, start, len(prompt), cached=hits)
        for i, block in enumerate(manager.block_table(name)[len(hits) :], len(hits)):
            shown[block] = (text[i * BLOCK_SIZE :][:BLOCK_SIZE], fill)
        note(f"r{name} comes")

    admit(1, "ABCDEFGHIJ", "a")
    admit(2, "ABCDEFXYZ", "b")
    manager.free(1)
    manager.free(2)
    note("both end")
    admit(3, "ABCDEFGH", "c")
    admit(4, "QRSTQRSTQRST", "d")
    return states


def draw_queue() -> Drawing:
    picture = Drawing(PHONE, 366, "Six blocks: who wrote them, and the queue of the free ones")
    picture.text(4, 12, "physical blocks 0 to 5,", anchor="start")
    picture.text(4, 29, "coloured by who wrote them last", anchor="start")
    picture.text(258, 12, "free queue,", anchor="start")
    picture.text(258, 29, "head first", anchor="start")
    for row, (event, shown, queue) in enumerate(history()):
        y = 52 + row * 58
        picture.text(4, y, event, anchor="start")
        for block, (content, fill) in enumerate(shown):
            x = 4 + block * 41
            picture.box(x, y + 11, 41, 26, content, fill)
            if block not in queue and content:
                picture.line([(x + 4, y + 41), (x + 37, y + 41)])
        picture.text(258, y + 24, "  ".join(map(str, queue)), anchor="start")
    picture.text(4, 354, "underlined: somebody holds it", anchor="start")
    return picture
