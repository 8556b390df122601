"""Directives of docs_hooks.py for what readers do in a page: play, solve, follow a request."""

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def playground(scene: str, whose: str = "") -> str:
    """For docs/javascripts/playground.js. `own-page`: it may have the page's address and keys.

    Such a page shows the scene at once, as it runs here; others show nothing until a reader asks.
    """
    from playground.scenes import SCENES

    settings = html.escape(json.dumps(SCENES[scene]))
    own, recorded = ' data-label="Play with it here"', ""
    if whose == "own-page":
        own, recorded = " data-links", _recorded(SCENES[scene])
    note = "<noscript>The playground needs JavaScript.</noscript>"
    return (
        f'<div class="playground" data-settings="{settings}"{own} markdown="0">'
        f"{recorded}{note}</div>"
    )


def _recorded(settings: Mapping[str, Any]) -> str:
    from playground import session
    from playground.scenes import SCENES, TITLES

    known = {
        "found": session.run(settings),
        "faults": session.faults(),
        "scenes": [{"title": said, "settings": SCENES[name]} for name, said in TITLES.items()],
    }
    data = json.dumps(known, ensure_ascii=False, separators=(",", ":")).replace("</", r"<\/")
    return f'<script type="application/json">{data}</script>'


def paste_trace() -> str:
    """For docs/javascripts/paste_trace.js, with the traces of examples/traces/."""
    from playground.trace_checks import SENTENCES, section

    root = Path(__file__).resolve().parents[1]
    scripts = []
    for path in sorted((root / "examples" / "traces").glob("*.json")):
        data = path.read_text("utf-8").strip().replace("</", r"<\/")
        name = html.escape(path.stem.replace("-", " "))
        scripts.append(f'<script type="application/json" data-name="{name}">{data}</script>')
    known = html.escape(json.dumps({name: section(name) for name in SENTENCES}))
    note = "<noscript>The check needs JavaScript.</noscript>"
    return (
        f'<div class="paste-trace" data-sections="{known}" markdown="0">'
        f"{''.join(scripts)}{note}</div>"
    )


def faults() -> str:
    """A row for each fault that the playground can plant."""
    from playground.breaks import BREAKS
    from playground.invariants import section
    from scripts.contents import chapters

    titles = {one.path.removeprefix("tutorial/"): one.title for one in chapters()}
    rows = ["| fault; its rule; what falls | what goes wrong | what a user sees |", "|---|---|---|"]
    for name, one in BREAKS.items():
        chapter = f"[{titles[one.chapter.split('#')[0]]}]({one.chapter})"
        falls = " or ".join(f"[{it}](../correctness.md#{section(it)})" for it in one.falls)
        rows.append(f"| *{name}*<br>{chapter}; {falls} | {one.says} | {one.user} |")
    return "\n".join(rows)


def journey(size: str = "") -> str:
    from scripts.tutorial.journey import diagram

    return diagram(size == "small", "" if size == "small" else "../../")


def exercise(name: str) -> str:
    from scripts.exercise_cell import exercise as cell

    return cell(name)


def exercises() -> str:
    """A row for each exercise, by size and by chapter."""
    from scripts.exercise_table import table

    return table()


def variant() -> str:
    """For docs/javascripts/exercises.js: which variant of the page's exercises is checked."""
    return '<div class="exercise-variant" markdown="0"></div>'


def kv_calculator() -> str:
    """For docs/javascripts/kv_calculator.js, with the constants of kv_sizes.py."""
    from dataclasses import asdict

    from scripts.tutorial import kv_sizes

    known = {
        "models": {name: asdict(model) for name, model in kv_sizes.MODELS.items()},
        "gpus": kv_sizes.GPUS,
        "bits": kv_sizes.BITS,
        "contexts": kv_sizes.CONTEXTS,
        "batches": kv_sizes.BATCHES,
        "share": kv_sizes.SHARE,
        "block_size": kv_sizes.BLOCK_SIZE,
        "paper": kv_sizes.PAPER,
    }
    note = "<noscript>The calculator needs JavaScript; a table stands below.</noscript>"
    data = html.escape(json.dumps(known))
    return f'<div class="kv-calculator" data-known="{data}" markdown="0">{note}</div>'


def two_orders() -> str:
    """For docs/javascripts/two_orders_scene.js, with the constants of two_orders.py."""
    from scripts.tutorial import two_orders as scene

    known = {
        "first": scene.FIRST.tolist(),
        "counts": scene.COUNTS,
        "workers": scene.WORKERS,
        "most_rows": scene.MOST_ROWS,
        "limit": scene.LIMIT,
        "tokens": scene.TOKENS,
    }
    data = html.escape(json.dumps(known))
    note = f"<noscript>{scene.table()}</noscript>"
    return f'<div class="two-orders" data-known="{data}" markdown="0">{note}</div>'


def speculation() -> str:
    """For docs/javascripts/speculation.js: texts that the oracle served, and a table of the first.

    A reader's own texts are served in the page.
    """
    from playground.guessing import TEXTS, run

    texts = {name: {"asked": dict(asked), "found": run(asked)} for name, asked in TEXTS.items()}
    data = json.dumps(texts, ensure_ascii=False, separators=(",", ":")).replace("</", r"<\/")
    script = f'<script type="application/json">{data}</script>'
    note = f"<noscript>{_guessed(next(iter(texts.values()))['found'])}</noscript>"
    return f'<div class="speculation" markdown="0">{script}{note}</div>'


def _guessed(found: dict[str, Any]) -> str:
    """HTML: a row for each step."""
    heads = ("step", "its text ends in", "guessed", "drawn", "kept", "free blocks")
    lines = ["".join(f"<th>{head}</th>" for head in heads)]
    for number, step in enumerate(found["steps"], 1):
        known = found["words"][: step["known"]]
        end = known[-step["match"][1] if step["match"] else -1 :]
        kept = step["draws"][: step["kept"]]
        cells = (str(number), *map(" ".join, (end, step["guesses"], step["draws"], kept)))
        free = " → ".join(map(str, step["free"]))
        lines.append("".join(f"<td>{html.escape(cell)}</td>" for cell in (*cells, free)))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    prompt = html.escape(" ".join(found["words"][: found["prompt"]]))
    return (
        f"<p>The picture needs JavaScript. Its first prompt, “{prompt}”:</p><table>{body}</table>"
    )


def arrivals() -> str:
    """For docs/javascripts/arrivals.js: what two servers did, up to the end of the faster one."""
    from scripts.tutorial import arrivals as scene

    frames, found = scene.played(), scene.summary()
    known = {
        "slots": scene.SLOTS,
        "longest": scene.LONGEST,
        "block": scene.BLOCK,
        "cards": scene.CARDS,
        "frames": {name: one[: found["paged_steps"]] for name, one in frames.items()},
    }
    script = f'<script type="application/json">{json.dumps(known, separators=(",", ":"))}</script>'
    says = f'<p class="arrivals-says">{html.escape(scene.sentence(found))}</p>'
    return f'<div class="arrivals" markdown="0">{script}{says}</div>'


def speaking(what: str = "") -> str:
    """For docs/javascripts/speaking.js: what it shows before a reader asks; "search" for beams."""
    from playground import speaking as scene

    if what:
        asked: list[dict[str, Any]] = [{"prompt": "once there was a", "words": 16, "beams": 3}]
        ready = [{"asked": one, "found": scene.search(one)} for one in asked]
    else:
        story = {"prompt": "once there was a red fox named ann .", "words": 46}
        asked = [story | {"event": event, "at": 7} for event in scene.EVENTS]
        ready = [{"asked": one, "found": scene.speak(one)} for one in asked]
    known = {"asked": asked[0], "first": ready[0]["found"], "ready": ready}
    known["words"] = scene.model().words
    script = f'<script type="application/json">{json.dumps(known, separators=(",", ":"))}</script>'
    note = "<noscript>The model needs JavaScript to speak here.</noscript>"
    return f'<div class="speaking" markdown="0">{script}{note}</div>'


INTERACTIVE = (
    playground,
    paste_trace,
    faults,
    exercise,
    exercises,
    variant,
    journey,
    kv_calculator,
    two_orders,
    speculation,
    arrivals,
    speaking,
)
