"""Directives of docs_hooks.py for what readers do in a page: play, solve, follow a request."""

import html
import json


def playground(scene: str) -> str:
    """For docs/javascripts/playground.js. On its own page it may have the address."""
    from playground.scenes import SCENES

    settings = html.escape(json.dumps(SCENES[scene]))
    own = " data-links" if scene == "crowd" else ' data-label="Play with it here"'
    note = "<noscript>The playground needs JavaScript.</noscript>"
    return f'<div class="playground" data-settings="{settings}"{own} markdown="0">{note}</div>'


def journey(size: str = "") -> str:
    from scripts.tutorial.journey import diagram

    return diagram(size == "small", "" if size == "small" else "../../")


def exercise(name: str) -> str:
    from scripts.exercise_cell import exercise as cell

    return cell(name)


INTERACTIVE = (playground, exercise, journey)
