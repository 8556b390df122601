"""Code and figures that pages take from elsewhere: they must be there, and be the present ones."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from benchmarks.report import load_results
from benchmarks.tables import detail_tables, headlines, with_results
from scripts import package_map
from scripts.contents import WORDS, chapters
from scripts.figures.__main__ import all_figures
from scripts.figures.svg import PHONE
from scripts.figures_in_pages import CAPTIONS, figure, named
from tests.meta.trees import ROOT, tracked_files

# What pages and docstrings name of other projects, and of checkpoints.
OF_OTHERS = {
    "1_Pooling/config.json",
    "applications/api_server/server.py",
    "awq/modules/linear/gemm.py",
    "core/sched/scheduler.py",
    "engine/core.py",
    "gpt_oss/torch/weights.py",
    "inference/kernel.py",
    "layers/sampler.py",
    "nn_modules/qlinear/qlinear_cuda.py",
    "squeezellm/quant.py",
    "worker/gpu/model_runner.py",
    "worker/gpu_worker.py",
}
MADE = {"jax_engine/models/families/NAME.py", "oracle/files.json"}  # by a reader, and with the site


def _hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name)
@pytest.mark.slow
def test_pages_build(page: Path) -> None:
    built = _hooks().on_page_markdown(page.read_text("utf-8"))
    assert not re.search(r"^\{\{ \w+.* \}\}$", built, re.MULTILINE)


def test_the_map_has_a_line_for_each_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "carrying-on.md").read_text("utf-8")
    mapped = re.findall(r"^\{\{ package_map (\S+) \}\}$", page, re.MULTILINE)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(mapped) == packages - {"tests", "benchmarks", "scripts", "exercises", "examples"}
    rows = package_map.package_map("reference")
    assert all(f"| `{path.name}` |" in rows for path in package_map.modules("reference"))
    assert "| **reference/quantization** | |" in rows.splitlines()
    monkeypatch.setattr(package_map, "ROOT", tmp_path)
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "__init__.py").write_text("")
    (tmp_path / "room" / "a.py").write_text('"""Doors, e.g. | of\noak:\n\n    one\n"""\n')
    (tmp_path / "room" / "b.py").write_text('"""Windows. They open."""\n')
    assert package_map.package_map("room").splitlines()[2:] == [
        r"| `a.py` | Doors, e.g. \| of oak |", "| `b.py` | Windows. |"
    ]  # fmt: skip
    (tmp_path / "room" / "c.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"room/c\.py has no docstring"):
        package_map.package_map("room")


def test_files_that_pages_and_docstrings_name_are_there() -> None:
    """By the end of their path; `engine/stats.py` is `jax_engine/engine/stats.py`."""
    files = [path.relative_to(ROOT).as_posix() for path in tracked_files()]
    ends = {
        "/".join(parts[at:]) for parts in (f.split("/") for f in files) for at in range(len(parts))
    }
    named = set()
    for file in files:
        if file.endswith((".md", ".py")):
            text = (ROOT / file).read_text("utf-8")
            named |= set(
                re.findall(r"`((?:\w[\w.-]*/)+[\w.-]+\.(?:py|md|json|tsv|mjs|toml))`", text)
            )
    assert len(named) > 100 and named - ends == OF_OTHERS | MADE


def test_an_unknown_directive_is_an_error() -> None:
    with pytest.raises(LookupError, match="known are source, figure"):
        _hooks().on_page_markdown("{{ figures block-table }}")


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_name_what_is_there(page: Path) -> None:
    folders = "benchmarks|examples|jax_engine|pallas_kernels|reference|scripts|tests"
    named = re.findall(rf"python -m ((?:{folders})[\w.]*\w)", page.read_text("utf-8"))
    assert [name for name in named if importlib.util.find_spec(name) is None] == []


def test_outputs_are_what_the_blocks_print() -> None:
    page = "```python\nx = 2\n```\n\n```python\nprint(x + 1)\n```\n{{ output }}\nend"
    assert '```text title="prints"\n3\n```\nend' in _hooks().with_outputs(page)
    with pytest.raises(ValueError, match="no Python block"):
        _hooks().with_outputs("text\n{{ output }}")
    with pytest.raises(ValueError, match="nothing is printed"):
        _hooks().with_outputs("```python\nx = 2\n```\n{{ output }}")


def test_figures_are_what_the_scripts_draw() -> None:
    """After a change: `python -m scripts.figures`."""
    drawn = {name: drawing.svg() for name, drawing in all_figures().items()}
    folder = ROOT / "docs" / "figures"
    assert {path.stem: path.read_text("utf-8") for path in folder.glob("*.svg")} == drawn


def test_references_to_figures_are_links_with_their_numbers() -> None:
    made = _hooks().on_page_markdown
    text = "see {{ ref queues }}\n\n{{ figure batching }}\n\n{{ figure queues }}\n"
    built = made(text, page=SimpleNamespace(file=SimpleNamespace(src_uri="tutorial/scheduler.md")))
    (label,) = re.findall(r"see \[(Figure \d+\.2)\]\(#figure-queues\)", built)
    assert 'id="figure-queues"' in built and f"<b>{label}.</b>" in built
    elsewhere = SimpleNamespace(file=SimpleNamespace(src_uri="costs.md"))
    assert f"[{label}](tutorial/scheduler.md#figure-queues)" in made(text[:20], page=elsewhere)
    with pytest.raises(LookupError, match="ref queue }}: known are allocator, "):
        made("as {{ ref queue }} shows")


def test_figures_fit_a_phone() -> None:
    """With text of 12 pixels; the narrow drawing, where there are two."""
    texts = "".join(page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md"))
    drawn = [name for name in named(texts) if name not in CAPTIONS]
    least = {name: re.findall(r"--least: (\d+)px", figure(name))[-1] for name in drawn}
    assert len(least) > 45
    assert {name: pixels for name, pixels in least.items() if int(pixels) > PHONE} == {}


def test_the_replay_has_a_caption() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="tutorial/see-it.md"))
    built = _hooks().on_page_markdown("{{ replay }}", page=page)
    assert re.search(r"<figcaption><b>Figure \d+\.1\.</b> Ten scenarios", built)


def test_long_names_in_tables_break_behind_dots() -> None:
    cell = "<td><code>BlockManager.block_table</code></td>"
    made = _hooks().on_page_content(f"<code>a.b_{'c' * 20}</code>{cell}")
    assert "<code>BlockManager.<wbr>block_<wbr>table</code>" in made
    assert made.startswith("<code>a.b_c")


def test_a_flag_and_a_number_with_its_unit_stay_together() -> None:
    area = "<textarea>a --flag, 5 %</textarea>"
    made = _hooks().on_page_content(
        f"<p>4 %, 2\nms, 3 things <code>a --flag-b 7 % 3</code></p>{area}"
    )
    kept = '<code>a <span class="unbroken">--flag</span>-b 7 % 3</code>'
    assert made == f"<p>4\N{NO-BREAK SPACE}%, 2\N{NO-BREAK SPACE}ms, 3 things {kept}</p>{area}"
    made = _hooks().on_page_content("<p>a -inf, -0.5. 3-4 x-1 - 2</p><svg><text>-1</text></svg>")
    inf, half = (f'<span class="unbroken">{one}</span>' for one in ("-inf", "-0.5"))
    assert made == f"<p>a {inf}, {half}. 3-4 x-1 - 2</p><svg><text>-1</text></svg>"
    assert "0.9" in _hooks().on_page_content("<td><code>temperature=0.7, top_p=0.9</code></td>")


def test_a_missing_definition_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"defines no BlockManager\.teleport"):
        _hooks().source_of("reference/blocks.py", "BlockManager.teleport")


def test_readme_shows_the_present_results() -> None:
    """After a benchmark: `python -m benchmarks.tables`."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme == with_results(readme)
    assert all(f"<!-- {name}:end -->" in readme for name in ("measured", "examples"))


def test_measured_figures_are_folded_and_have_their_units() -> None:
    lines = detail_tables().splitlines()
    assert any(re.fullmatch(r"    \| warm: first token \| [\d.,]+ s \|", line) for line in lines)
    figures = [line for line in lines if line.startswith("    | ")]
    assert len(figures) > 500
    assert [line for line in figures if re.search(r" (ms|us|mib|percent) \|", line[:-2])] == []
    shown = {line.split()[0] for line in lines if line and not line.startswith("    ")}
    assert shown == {"###", "???", "On"}, "all else is folded"


def test_each_headline_has_a_subject() -> None:
    """Those of comparisons are on another page."""
    saved = [one for one in load_results() if not one["name"].startswith("compare_")]
    rows = [line for line in headlines().splitlines() if line.startswith("| ")][1:]
    assert len([row for row in rows if "**" not in row]) == sum(
        len(one["headline"]) for one in saved
    )
    for one in saved:
        assert all(f"| {what} |" in "\n".join(rows) for what in one["headline"]), one["name"]


def test_minutes_count_what_a_page_shows() -> None:
    shown = _hooks().with_code_and_results
    text = "{{ source reference/blocks.py BlockManager.fork }}\n{{ figure queues }}\n{{ output }}\n"
    assert "def fork(" in shown(text) and "figure" not in shown(text)
    assert shown(text).endswith("{{ output }}\n")
    minutes = {one.name: one.minutes() for one in chapters() if one.name == "scheduler"}
    words = len((ROOT / "docs/tutorial/scheduler.md").read_text("utf-8").split())
    assert minutes["scheduler"] > words / WORDS


def test_the_paper_s_numbers_lie_over_our_plots() -> None:
    """A row whose name no longer matches its curve would lose its mark without a word."""
    dotted = (ROOT / "docs" / "figures" / "paper-12.svg").read_text("utf-8").count('"2 3"')
    rings = (ROOT / "docs" / "figures" / "paper-15.svg").read_text("utf-8").count('r="4.5"')
    assert (dotted, rings) == (10, 10)


def test_arrows_have_heads_of_their_own() -> None:
    """A page with two drawings of a figure hides one, and with it the heads that it defines."""
    drawings = [path.read_text("utf-8") for path in (ROOT / "docs" / "figures").glob("*.svg")]
    heads = [head for text in drawings for head in re.findall(r'<marker id="([^"]+)"', text)]
    assert len(heads) > 10 and len(set(heads)) == len(heads)
    for text in drawings:
        assert set(re.findall(r"url\(#([^)]+)\)", text)) == set(
            re.findall(r'<marker id="([^"]+)"', text)
        )
