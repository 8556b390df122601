"""The scene of one sum in two orders: its numbers, and that the page shows them."""

import doctest
import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts import interactive
from scripts.figures import sum_orders
from scripts.tutorial import two_orders as scene
from scripts.tutorial.two_orders import COUNTS, FIRST, LIMIT, MOST_ROWS, additions, drawn, total_of
from tests.docs.test_replay import CHROMIUM, needs_chromium
from tests.meta.trees import ROOT
from tests.support.chromium import Page, chromium

ORDERS = (1, 2, 4)
AWKWARD = (
    [0.0] * 8,
    [-0.0] * 8,
    [LIMIT, 1.0, -LIMIT, 1.0, LIMIT, 1.0, -LIMIT, 1.0],
    [LIMIT] * 16,
    [1e-45, -1e-45, 3e-45, 1.2e-38, -1e-38, 1e-45, 0.0, 1e-40],  # below the smallest normal number
    [2.0**24, 1.0, 2.0**24, 3.0, -(2.0**25), 2.0**-1, 2.0**-24, 1.0],  # ties, to both sides
    [1.0, 2.0**-24, 2.0**-24, 2.0**-24, -1.0, 2.0**-25, 2.0**-24, -(2.0**-24)],
)
ROWS = [FIRST, *(np.array(row, np.float32) for row in AWKWARD)]
ROWS += [drawn(seed, count) for seed in (0, 1, 2, 3, 77, 9999) for count in COUNTS]
LARGEST = np.float32(LIMIT).item()
FLOATS = st.floats(-LARGEST, LARGEST, width=32)


def in_order(numbers: Any) -> np.float32:
    """As the chapter has it."""
    total = np.float32(0)
    for number in numbers:
        total = np.float32(total + number)
    return total


def known(numbers: np.ndarray, parts: int) -> dict[str, Any]:
    """What two_orders.js is asked for."""
    made = additions(numbers, parts)
    other = scene.other_logit(numbers)
    total = total_of(made)
    return {
        "made": [
            [one.step, one.worker, *(x.item() for x in (one.left, one.right, one.total, one.lost))]
            for one in made
        ],
        "lost": scene.lost_in_all(made),
        "bits": scene.bits(total),
        "other": None if other is None else other.item(),
        "token": None if other is None else scene.token(total, other),
    }


COMPUTED = """(() => {
  const { additions, totalOf, lostInAll, bits, otherLogit, token } = window.twoOrders;
  return ROWS.flatMap((numbers) => [1, 2, 4].map((parts) => {
    const made = additions(numbers, parts), total = totalOf(made), other = otherLogit(numbers);
    return {
      made: made.map((one) => [one.step, one.worker, one.left, one.right, one.total, one.lost]),
      lost: lostInAll(made), bits: bits(total), other,
      token: other === null ? null : token(["sun", "rain"], total, other),
    };
  }));
})()""".replace("ROWS", json.dumps([row.tolist() for row in ROWS]))
DRAWN = "SEEDS.map((seed) => [8, 12, 16].map((count) => window.twoOrders.drawn(seed, count)))"
SHOWN = """[...document.querySelectorAll(".two-orders-both section")].map((section) => ({
  rows: [...section.querySelectorAll("tbody tr")]
    .filter((row) => getComputedStyle(row.querySelector("td")).visibility === "visible")
    .map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent)),
  sum: section.querySelector(".two-orders-sum").textContent,
  ended: getComputedStyle(section.querySelector(".two-orders-sum")).visibility === "visible",
}))"""
FORWARD = """document.querySelector(".two-orders").dispatchEvent(
  new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}))"""
CLICK = """[...document.querySelectorAll(".two-orders button")]
  .find((one) => one.textContent === TEXT).click()"""
WRITE = """(() => {
  const input = document.querySelector(WHERE);
  input.value = VALUE;
  for (const kind of ["input", "change"]) input.dispatchEvent(new Event(kind));
})()"""
STICKS_OUT = """[...document.querySelectorAll(".two-orders-both section, .two-orders-row input")]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.value ?? one.textContent)"""
STATUS = "document.querySelector('.two-orders [role=status]').textContent"


def write(browser: Page, where: str, value: object) -> None:
    browser.run(WRITE.replace("WHERE", json.dumps(where)).replace("VALUE", json.dumps(value)))


def test_its_docstring() -> None:
    result = doctest.testmod(scene)
    assert (result.failed, result.attempted) == (0, 1)


def test_by_hand() -> None:
    """4 steps instead of 7, and three sums. The exact one is 6."""
    made = additions(FIRST, 4)
    steps = [(one.step, one.worker, one.total.item(), one.lost.item()) for one in made]
    assert steps == [
        (1, 0, 2.0**24, 1), (1, 1, 2, 0), (1, 2, 2, 0), (1, 3, 1 - 2.0**24, 0),
        (2, None, 2.0**24 + 2, 0), (3, None, 2.0**24 + 4, 0), (4, None, 5, 0),
    ]  # fmt: skip
    assert [known(FIRST, parts)["lost"] for parts in ORDERS] == [5, 3, 1]
    assert [known(FIRST, parts)["bits"] for parts in ORDERS] == ["3f800000", "40400000", "40a00000"]
    assert [known(FIRST, parts)["token"] for parts in ORDERS] == ["rain", "sun", "sun"]
    assert [scene.parts_for(rows) for rows in range(1, MOST_ROWS + 1)] == [4, 2, 1, 1, 1, 1, 1, 1]


def test_the_first_row_is_the_figure_s() -> None:
    np.testing.assert_array_equal(FIRST, sum_orders.NUMBERS)


@pytest.mark.parametrize("parts", ORDERS)
@given(numbers=st.sampled_from(COUNTS).flatmap(lambda n: st.lists(FLOATS, min_size=n, max_size=n)))
def test_sums_are_numpy_s_and_losses_are_exact(parts: int, numbers: list[float]) -> None:
    row = np.array(numbers, np.float32)
    made = additions(row, parts)
    assert total_of(made) == in_order([in_order(piece) for piece in np.split(row, parts)])
    for one in made:
        exact = Fraction(one.left.item()) + Fraction(one.right.item())
        assert exact == Fraction(one.total.item()) + Fraction(one.lost.item())
    lost = sum(Fraction(one.lost.item()) for one in made)
    assert Fraction(total_of(made).item()) + lost == sum(map(Fraction, row.tolist()))
    assert len(made) == len(row) - 1 and made[-1].step == len(row) // parts + parts - 2


@given(st.lists(FLOATS, min_size=8, max_size=8))
def test_the_other_logit_flips_the_token_where_bits_differ(numbers: list[float]) -> None:
    row = np.array(numbers, np.float32)
    totals = [total_of(additions(row, parts)) for parts in ORDERS]
    other = scene.other_logit(row)
    if other is None:
        assert len(set(totals)) == 1
    else:
        assert len({scene.token(total, other) for total in totals}) == 2


def test_seeds_draw_rows_of_which_many_differ() -> None:
    rows = [drawn(seed, 16) for seed in range(200)]
    assert len({tuple(row.tolist()) for row in rows}) == 200
    assert all(row.dtype == np.float32 and (np.abs(row) <= 4).all() for row in rows)
    assert 100 < sum(scene.other_logit(row) is not None for row in rows) < 200


def test_without_javascript_there_is_a_table() -> None:
    (note,) = re.findall(r"<noscript>(.*)</noscript>", interactive.two_orders(), re.DOTALL)
    cells = re.findall(r"<td>(.*?)</td>", note)
    assert cells[2::5] == ["1", "3", "5"]
    assert cells[3::5] == ["40a00000", "40400000", "3f800000"]
    assert cells[4::5] == ["sun", "sun", "rain"]
    assert cells[1].endswith("16777218 + 2 = 16777220<br>16777220 + -16777215 = 5")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    docs = ROOT / "docs"
    scripts = "".join(
        f"<script>{(docs / 'javascripts' / name).read_text('utf-8')}</script>"
        for name in ("elements.js", "two_orders.js", "two_orders_scene.js")
    )
    styles = "".join(
        (docs / "stylesheets" / f"{name}.css").read_text("utf-8")
        for name in ("figures", "two_orders")
    )
    path = tmp_path_factory.mktemp("scene") / "scene.html"
    path.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<style>html {{ font: 125% sans-serif; }} {styles}</style><body class='md-typeset'>"
        f"{interactive.two_orders()}{scripts}",
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(CHROMIUM, tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(started: Page, page: Path) -> Page:
    started.size(1400, 900)
    started.open(page.as_uri())
    started.until("document.querySelectorAll('.two-orders-table').length === 2")
    return started


@needs_chromium
def test_the_page_computes_the_same(browser: Page) -> None:
    assert browser.run(COMPUTED) == [known(row, parts) for row in ROWS for parts in ORDERS]
    seeds = [*range(50), 4242, 9999]
    wanted = [[drawn(seed, count).tolist() for count in COUNTS] for seed in seeds]
    assert browser.run(DRAWN.replace("SEEDS", json.dumps(seeds))) == wanted


@needs_chromium
def test_the_comparison_notices_a_page_that_does_not_round(page: Path, browser: Page) -> None:
    wrong = page.with_name("wrong.html")
    text = page.read_text("utf-8")
    wrong.write_text(text.replace("round(left + right)", "left + right"), encoding="utf-8")
    browser.open(wrong.as_uri())
    browser.until("document.querySelectorAll('.two-orders-table').length === 2")
    pairs = zip(browser.run(COMPUTED), [known(row, p) for row in ROWS for p in ORDERS], strict=True)
    assert sum(found != wanted for found, wanted in pairs) > len(ROWS)


def check_panels(browser: Page, numbers: np.ndarray, rows: int, step: int) -> None:
    """Both tables have the additions up to a step, and no more."""
    for panel, parts in zip(browser.run(SHOWN), (1, scene.parts_for(rows)), strict=True):
        made = additions(numbers, parts)
        made.sort(key=lambda one: (one.worker is None, one.worker or 0))  # as the tables have them
        due = [one for one in made if one.step <= step]
        assert len(panel["rows"]) == len(due)
        for one, (adds, total, lost) in zip(due, panel["rows"], strict=True):
            sign, right = adds.split(" ")[-2:]
            assert np.float32(f"{'-' if sign == '−' else ''}{right}") == one.right
            assert np.float32(total) == one.total
            assert float(lost) == pytest.approx(one.lost.item(), rel=5e-3)
        assert panel["ended"] == (step >= made[-1].step)
        assert f"bits {scene.bits(total_of(made))}" in panel["sum"]


@needs_chromium
@pytest.mark.parametrize("width", [1400, 390])
def test_a_reader_steps_through_both_orders(browser: Page, width: int) -> None:
    browser.size(width, 900, phone=width < 1000)
    for step in range(8):
        check_panels(browser, FIRST, 1, step)
        browser.run(FORWARD)
    assert "“rain” by row, “sun” by shape" in browser.run(STATUS)
    by_row = browser.run(SHOWN)[0]
    for rows in range(1, MOST_ROWS + 1):  # company
        write(browser, "input[type=range]", rows)
        check_panels(browser, FIRST, rows, 7)
        assert browser.run(SHOWN)[0] == by_row
        assert ("another order" in browser.run(STATUS)) == (rows > 2)
    browser.run(CLICK.replace("TEXT", '"⇤"'))
    check_panels(browser, FIRST, MOST_ROWS, 0)
    write(browser, "input[type=range]", 1)
    for seed in range(1, 40):
        assert browser.run(STICKS_OUT) == []
        write(browser, ".two-orders select", COUNTS[seed % 3])
        write(browser, ".two-orders-line input", seed)
    assert browser.run("document.documentElement.scrollWidth") <= width
    unnamed = "input:not([aria-label]):not(label input), button:not([aria-label]):empty"
    assert browser.run(f"document.querySelectorAll({json.dumps(unnamed)}).length") == 0
    assert browser.problems == []


@needs_chromium
def test_a_reader_changes_the_numbers(browser: Page) -> None:
    browser.run(CLICK.replace("TEXT", '"⇥"'))
    for seed, count in ((1, 8), (2, 8), (2, 12), (3, 16)):  # the end stays the end
        write(browser, ".two-orders select", count)
        write(browser, ".two-orders-line input", seed)
        for rows in (1, 2):
            write(browser, "input[type=range]", rows)
            check_panels(browser, drawn(seed, count), rows, count - 1)
    browser.run(CLICK.replace("TEXT", '"Draw another row"'))
    check_panels(browser, numbers := drawn(4, 16), 2, 15)
    number = ".two-orders-row input:nth-child(3)"
    write(browser, number, "0.1")
    numbers[2] = 0.1
    check_panels(browser, numbers, 2, 15)
    invalid = f"document.querySelector('{number}').matches(':invalid[aria-invalid=true]')"
    for bad in ("", "1e31", "-1e39"):
        write(browser, number, bad)
        assert browser.run(invalid)
        check_panels(browser, numbers, 2, 15)  # the row is as it was
    write(browser, number, "-1e30")
    numbers[2] = -LIMIT
    assert not browser.run(invalid)
    check_panels(browser, numbers, 2, 15)
    write(browser, ".two-orders-line input", "123456.7")
    check_panels(browser, drawn(9999, 16), 2, 15)
    write(browser, ".two-orders-line input", "-3")
    check_panels(browser, drawn(1, 16), 2, 15)
    browser.run(CLICK.replace("TEXT", '"The first row"'))
    check_panels(browser, FIRST, 2, 7)
    assert browser.problems == []


@needs_chromium
def test_paper_has_all_steps_and_no_buttons(browser: Page) -> None:
    browser.ask("Emulation.setEmulatedMedia", media="print")
    try:
        check_panels(browser, FIRST, 1, 7)
        shown = "document.querySelectorAll('.two-orders button')[0].getClientRects().length"
        assert browser.run(shown) == 0
    finally:
        browser.ask("Emulation.setEmulatedMedia", media="")
