"""Pictures of the server's page for docs/serving.md: `python -m scripts.page_pictures`.

Starts `jax-engine serve` with SmolLM2 and uses its page in Chromium, first to compile.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.serving.test_page import CHROMIUM, is_done, is_live, send
from tests.support.chromium import Page, chromium

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SERVE = [sys.executable, "-m", "jax_engine", "serve", "--port=0", "--enable-prefix-caching"]
SERVE += ["--num-gpu-blocks-override=256", "--max-model-len=2048"]
SKY, STORY = "Why is the sky blue?", "Write a short story about a paging system."


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    server = subprocess.Popen(SERVE, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        url = next(filter(None, (re.search(r"http://\S+", line) for line in server.stderr)))[0]
        with tempfile.TemporaryDirectory() as folder, chromium(CHROMIUM, Path(folder)) as page:
            _take(page, f"{url}/")
    finally:
        server.terminate()
        server.wait()


def _take(page: Page, url: str) -> None:
    page.size(1280, 860)
    page.scheme("light")
    is_live(page, url)
    _all(page, 12)  # compiles
    page.run("document.getElementById('new').click()")
    send(page, SKY, samples=4, tokens=70)
    is_done(page)
    send(page, STORY, button="many", tokens=120)
    page.until(f"document.querySelectorAll('#running .chip').length === 8 && {_generated(60)}")
    _save_both(page, "page")
    is_done(page)
    page.run("document.getElementById('new').click()")
    page.size(390, 844, phone=True, scale=1.5)
    send(page, SKY, samples=4, tokens=120)
    page.until(_generated(200))
    page.run("document.querySelector('#map .is-forked').click()")
    page.run("document.getElementById('log').scrollTop = 0")
    _save_both(page, "page-phone")


def _all(page: Page, tokens: int) -> None:
    send(page, SKY, samples=4, tokens=tokens)
    is_done(page)
    send(page, STORY, button="many", tokens=tokens)
    is_done(page)


def _generated(tokens: int) -> str:
    """Whether the first running request has so many tokens."""
    chip = "document.querySelector('#running .chip')?.textContent"
    return f"Number(/(\\d+) tokens/.exec({chip})?.[1]) >= {tokens}"


def _save_both(page: Page, name: str) -> None:
    """In both palettes; the documentation shows that of the reader's own."""
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        time.sleep(0.2)
        path = FOLDER / f"{name}-{scheme}.webp"
        path.write_bytes(page.picture())
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    page.scheme("light")


if __name__ == "__main__":
    main()
