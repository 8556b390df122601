"""MkDocs hooks: source code and measurements are put into the pages when they are built.

    {{ source reference/blocks.py BlockManager.fork }}    that function, class or assignment
    {{ output }}  {{ output table }}       what the Python block above it prints, or that as a table
    {{ figure block-table }}                               docs/figures/block-table.svg, in line
    {{ ref block-table }}               within a sentence: a link to that figure, by its number
    {{ contents }}  {{ contents paths }}    the tutorial's pages, or ways through them
    {{ chapters }}                                         the files of reference/, in reading order
    {{ replay }}  {{ replay copy-on-write }}               docs/traces, all or those, to watch
    {{ playground sharing }}               a scene of playground/scenes.py, to play with
    {{ paste_trace }}                      a reader's own trace, checked in the page
    {{ trace_fields }}                     a row for each field of such a trace
    {{ package_map reference }}            a line for each file of a folder
    {{ conformance kinds }}                the suite for others: kinds, contracts, found, or a file
    {{ vllm_settings engine }}             what becomes of vLLM's settings, or ("server") flags
    {{ faults }}                           a table of playground/breaks.py
    {{ journey }}  {{ journey small }}     the system, and a request on its way through it
    {{ exercise allocator }}               a file of exercises/, to do in the page
    {{ exercises }}  {{ variant }}         a table of them, and which variant of them is checked
    {{ two_orders }}                       one sum in two orders, to step through
    {{ speculation }}                      guesses of a text, to step through
    {{ speaking }}  {{ speaking search }}  a model that speaks in the page, or searches with beams
    {{ arrivals }}                         requests at a server that reserves and one that pages

And what is in benchmarks/results/:

    {{ value decode_ms }}               a number within a sentence (benchmarks/values.py)
    {{ measured headlines }} {{ measured }}  their headlines, and each without a page of its own
    {{ compared }} {{ compared summary }}   compare_*.json, engine by engine or a row for each
    {{ compared quantised }}            quantised_files.json, a row for each engine on each file
    {{ compared quantised_avx2 }}       the same of quantised_files_avx2.json
    {{ table sampler }}                 sampler.json, and others (benchmarks.tables.TABLES)
    {{ curves memory }} {{ curves }}        a curve of curves.json, or where they were measured
    {{ examples }} {{ server_tests }} {{ profile }}   vllm_examples, vllm_tests, step_profile.json
    {{ paper 12 }} {{ paper summary }}      a figure of paper.json, or all in short

So a page never shows code that is not there, nor a figure that nobody measured.
"""

import ast
import os
import re
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from scripts import cell_outputs
from scripts.conformance_pages import conformance
from scripts.figures_in_pages import CAPTIONS, figure, numbered, played, reference
from scripts.interactive import INTERACTIVE
from scripts.line_breaks import break_lines
from scripts.package_map import package_map
from scripts.printed_tables import as_block, as_table, captioned
from scripts.slide_addresses import address_slides
from scripts.trace_fields import trace_fields

# Threads of XLA: an interpreted Mosaic kernel in a page takes one for each warpgroup, or it hangs.
os.environ.setdefault("NPROC", "4")

ROOT = Path(__file__).resolve().parents[1]
DIRECTIVE = re.compile(r"^\{\{ (\w+)((?: \S+)*) \}\}$", re.MULTILINE)
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHAPTER = re.compile(r"^    `(\w+)` +(.+)$|^([A-Z][^.:;\n]+)$(?=\n    `)", re.MULTILINE)
VALUE = re.compile(r"\{\{ value (\w+) \}\}")
REF = re.compile(r"\{\{ ref ([\w-]+) \}\}")
OUTPUT = re.compile(r"\{\{ output( table)? \}\}")
TITLE = re.compile(r"\A# .+\n")


def source_of(path: str, name: str) -> str:
    """The text of a definition, by its dotted name in that file.

    Raises:
        LookupError: there is none; the build fails.
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        found = [x for x in ast.iter_child_nodes(node) if part in _names(x)]
        if not found:
            raise LookupError(f"{path} defines no {name}")
        node = found[0]
    assert isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Assign))
    decorators = [] if isinstance(node, ast.Assign) else node.decorator_list
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    lines = text.splitlines()[first - 1 : node.end_lineno]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines)


def _names(node: ast.AST) -> list[str]:
    """What a function, a class or an assignment defines."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [getattr(node, "name", "")]


def with_outputs(markdown: str) -> str:
    """Runs the page's Python blocks in order, in one namespace, and puts in what they print.

    Raises:
        ValueError: There is no block right above an `{{ output }}`, it prints nothing, or what
            shall be a table has lines of different columns.
        RuntimeError: A block has failed.
    """
    parts, at = [], 0
    blocks = list(BLOCK.finditer(markdown))
    codes = tuple(block[1] for block in blocks)
    texts = cell_outputs.printed(codes)
    for block, printed in zip(blocks, texts, strict=True):
        parts.append(markdown[at : block.end()])
        at = block.end()
        shown = re.compile(rf"\s*{OUTPUT.pattern}").match(markdown, at)
        if shown is not None:
            if not printed:
                raise ValueError(f"nothing is printed by the block {block[1]!r}")
            table = shown[1] is not None and printed != cell_outputs.NOT_RUN
            parts.append(f"\n\n{as_table(printed) if table else as_block(printed)}")
            at = shown.end()
    page = "".join([*parts, markdown[at:]])
    if found := OUTPUT.search(page):
        raise ValueError(f"{found[0]} has no Python block right above it")
    return _with_doubt(page, cell_outputs.doubt(codes))


def _with_doubt(page: str, doubt: str) -> str:
    """The page with a quiet line below its title, if there is something to say."""
    line = f'\n<p class="quick-build">{doubt}</p>\n'
    return TITLE.sub(lambda title: title[0] + line, page.lstrip()) if doubt else page


def contents(what: str = "") -> str:
    from scripts import contents as tutorial

    return tutorial.paths() if what == "paths" else tutorial.contents()


def chapters() -> str:
    """The reading order in reference/__init__.py: a row for each part and each chapter."""
    import reference

    assert reference.__doc__ is not None
    rows = ["| chapter | is about |", "|---|---|"]
    for name, about, part in CHAPTER.findall(reference.__doc__):
        rows.append(f"| `{name}` | {about} |" if name else f"| **{part}** | |")
    return "\n".join(rows)


def replay(*names: str) -> str:
    """Traces for docs/javascripts/replay.js; of all scenarios if none is named.

    They stand in the page, so that it works where nothing can be fetched, as from a folder.
    """
    from playground.trace_scenarios import SCENARIOS

    scripts = []
    for name in names or SCENARIOS:
        trace = (ROOT / "docs" / "traces" / f"{name}.json").read_text("utf-8").strip()
        safe = trace.replace("</", r"<\/")
        scripts.append(f'<script type="application/json" data-trace="{name}">\n{safe}\n</script>')
    links = "" if names else " data-links"
    note = "<noscript>The replay needs JavaScript.</noscript>"
    return "\n".join([f'<div class="replay"{links} markdown="0">', *scripts, note, "</div>"])


def source(path: str, name: str) -> str:
    """A definition as a block of code under the name of its file."""
    return f'```python title="{path}"\n{source_of(path, name)}\n```'


def measured(what: str = "") -> str:
    from benchmarks import tables

    return tables.headlines() if what else tables.detail_tables()


def compared(what: str = "") -> str:
    from benchmarks.compare import table

    if what.startswith("quantised"):
        return table.quantised_table(what.removeprefix("quantised"))
    return table.summary() if what else table.compare_tables()


def curves(name: str = "") -> str:
    from benchmarks.curves import page

    return page.section(name) if name else page.where()


def examples() -> str:
    from benchmarks.vllm_examples.page import tables

    return tables()


def server_tests() -> str:
    from benchmarks.vllm_tests.page import tables

    return tables()


def profile() -> str:
    from benchmarks.step_profile.page import tables

    return tables()


def servers() -> str:
    from benchmarks.compare.servers import table

    return table.tables()


def table(name: str) -> str:
    """A table that a page has of one result."""
    from benchmarks.tables import TABLES

    return TABLES[name]()


def vllm_settings(part: str) -> str:
    """What becomes here of vLLM's settings of the "engine", or of flags of its "server"."""
    from scripts.vllm_table import vllm_tables

    return vllm_tables(part)


def paper(what: str) -> str:
    from benchmarks.paper import tables, verdicts

    return verdicts.summary() if what == "summary" else tables.section(what)


def value(name: str) -> str:
    """A measured number.

    Raises:
        LookupError: There is none of that name, or its result lacks it; the build fails.
    """
    from benchmarks.values import VALUES

    if name not in VALUES:
        raise LookupError(f"{{{{ value {name} }}}}: known are {', '.join(VALUES)}")
    return VALUES[name]()


FROM_CODE = (
    source,
    figure,
    contents,
    chapters,
    package_map,
    conformance,
    trace_fields,
    vllm_settings,
    replay,
    *INTERACTIVE,
)
FROM_RESULTS = (
    measured,
    compared,
    curves,
    examples,
    server_tests,
    paper,
    profile,
    servers,
    table,
)
DIRECTIVES: dict[str, Callable[..., str]] = {one.__name__: one for one in FROM_CODE + FROM_RESULTS}


def with_code_and_results(markdown: str) -> str:
    """The page with what it shows of code and results; no cell runs, and figures are left out."""

    def made(match: re.Match[str]) -> str:
        return match[0] if OUTPUT.fullmatch(match[0]) else DIRECTIVES[match[1]](*match[2].split())

    read = "|".join(
        one.__name__
        for one in (
            *(source, chapters, package_map, conformance, trace_fields, vllm_settings),
            *FROM_RESULTS,
        )
    )
    parts = re.sub(rf"^{{{{ (?!(?:{read}|output)\b).* }}}}$", "", markdown, flags=re.MULTILINE)
    return DIRECTIVE.sub(made, VALUE.sub(lambda match: value(match[1]), parts))


def on_files(files: Any, **_: Any) -> None:
    """Called by MkDocs before the first page: cells begin to run."""
    texts = [file.content_string for file in files.documentation_pages()]
    cells = [
        tuple(block[1] for block in BLOCK.finditer(text)) for text in texts if OUTPUT.search(text)
    ]
    cell_outputs.start(cells)


def on_page_markdown(markdown: str, page: Any = None, **_: Any) -> str:
    """Called by MkDocs for each page.

    Raises:
        LookupError: There is no such directive, or it names what is not there.
    """
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))

    path = "" if page is None else page.file.src_uri
    order = count()

    def made(match: re.Match[str]) -> str:
        name, arguments = match[1], match[2].split()
        if name == "figure":
            return figure(*arguments, numbered(path, next(order)))
        if name not in DIRECTIVES:
            raise LookupError(f"{match[0]}: known are {', '.join(DIRECTIVES)}")
        shown = DIRECTIVES[name](*arguments)
        if name in CAPTIONS and not arguments:
            return played(name, shown, numbered(path, next(order)))
        return shown

    if OUTPUT.search(markdown):
        markdown = with_outputs(markdown)
    markdown = REF.sub(lambda match: reference(match[1], path), markdown)
    return VALUE.sub(lambda match: value(match[1]), DIRECTIVE.sub(made, markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Called by MkDocs with each page as HTML."""
    return break_lines(captioned(address_slides(html)))
