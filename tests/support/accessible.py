"""What a page in Chromium offers to a keyboard and to a screen reader."""

from typing import Any

from tests.support.chromium import Page

CONTROLS = {
    "button", "checkbox", "combobox", "link", "listbox", "menuitem", "radio", "searchbox", "slider",
    "spinbutton", "switch", "tab", "textbox", "DisclosureTriangle",
}  # fmt: skip
"""Roles, as Chromium's accessibility tree names them."""

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37,
        "ArrowRight": 39, "e": 69}  # fmt: skip
SHIFT = 8

# The controls that are shown, in the order of the page. Of radio buttons of one name Tab stops at
# the chosen one, or at the first.
STOPS = """[...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex]:not([tabindex='-1'])")]
  .filter((one) => one.tabIndex >= 0 && !one.disabled && !one.closest("[hidden]")
    && one.checkVisibility({visibilityProperty: true}))
  .filter((one) => one.type !== "radio" || one.checked
    || (!document.querySelector(`[name="${one.name}"]:checked`)
      && document.querySelector(`[name="${one.name}"]`) === one))"""
MARK = f"(window.stops = {STOPS}).length"
MARKED = "window.stops.length"
WHERE = "window.stops.indexOf(document.activeElement)"
# Chromium stops at what can be scrolled, too, so that arrow keys scroll it.
SCROLLS = """(({scrollWidth, clientWidth, scrollHeight, clientHeight}) =>
  scrollWidth > clientWidth || scrollHeight > clientHeight)(document.activeElement)"""
ENDED = "document.activeElement === document.body"
# Of the theme's hidden radio buttons the label shows the focus.
FOCUS = """(() => {
  const one = document.activeElement;
  const shown = one.matches(".md-option") ? one.nextElementSibling : one;
  const style = getComputedStyle(shown);
  return {
    at: one.outerHTML.slice(0, 90),
    outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
    seen: shown.getBoundingClientRect().width > 0,
  };
})()"""


def controls(page: Page) -> list[tuple[str, str]]:
    """(role, name) of each control in the accessibility tree."""
    nodes = page.ask("Accessibility.getFullAXTree")["nodes"]
    return [
        (node["role"]["value"], node.get("name", {}).get("value", "").strip())
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in CONTROLS
    ]


def press(page: Page, key: str, modifiers: int = 0) -> None:
    """As a reader's keyboard does."""
    text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
    about = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": modifiers}
    page.ask("Input.dispatchKeyEvent", type="keyDown", **about, **text)
    page.ask("Input.dispatchKeyEvent", type="keyUp", **about)


def walk(page: Page) -> list[dict[str, Any]]:
    """Tabs through the page once: at each stop, which control of `STOPS` it is, and its outline."""
    # A page that was just opened need not have the window's focus yet, and then shows none.
    page.ask("Emulation.setFocusEmulationEnabled", enabled=True)
    count = page.run(MARK)
    page.run("window.stops[0].focus(), 0")
    found: list[dict[str, Any]] = []
    for _ in range(2 * count + 2):
        at = page.run(WHERE)
        if page.run(ENDED) or (found and at == found[0]["stop"]):  # then come the browser's own
            break
        if at >= 0 or not page.run(SCROLLS):
            found.append({"stop": at, **page.run(FOCUS)})
        if page.run("document.activeElement.matches('.editor-text')"):
            press(page, "Escape")
        press(page, "Tab")
    return found
