"""The page of the suite: its example, its commands, its workflow and its tables are true."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from paged_conformance.command import main, parser
from paged_conformance.report import ENDINGS, FORMATS
from paged_conformance.suites import SUITES, Suite
from scripts.conformance_pages import EXAMPLES, conformance, suites

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/conformance.md").read_text("utf-8")
CONTRACTS = (ROOT / "docs/conformance-contracts.md").read_text("utf-8")
COUNTS = re.compile(r"in \d+\.\d s|\d+ examples")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """The arguments of each `paged-conformance` in a text."""
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [words[1:] for words in lines if words[:1] == ["paged-conformance"]]


def test_the_first_failing_example_is_the_one_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("paged_conformance.block_manager")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_blocks.py").write_text((EXAMPLES / "my_blocks.py").read_text())
    first, *others = commands("".join(blocks("sh")))
    shown = next(block for block in blocks("text") if block.startswith("block-manager:"))
    assert main([*first, "--seconds", "120"]) == 1
    assert COUNTS.sub("", capsys.readouterr().out) == COUNTS.sub("", shown)
    assert main(others[0]) == 0, "the mended class holds on the replayed example"
    assert json.loads(shown[shown.index("{\n") : shown.index("\n}") + 2])["num_blocks"] == 2


def test_each_command_of_the_page_is_one() -> None:
    found = commands("".join(blocks("sh")))
    assert len(found) >= 4
    for arguments in found:
        parser().parse_args(arguments)


def test_each_argument_has_a_row() -> None:
    named = set(re.findall(r"--[a-z]+", PAGE[PAGE.index("## The command") :]))
    asked = {flag for action in parser()._actions for flag in action.option_strings}
    assert asked - {"-h", "--help", "--list"} <= named
    assert all(f"`{word}`" in PAGE or f" {word}`" in PAGE for word in FORMATS)
    assert all(f"`{ending}`" in PAGE for ending in ENDINGS)


def test_the_workflow_runs_commands_that_are_there() -> None:
    workflow = yaml.safe_load((EXAMPLES / "workflow.yml").read_text())
    assert "schedule" in workflow[True], "YAML 1.1 reads `on` as true"
    job = workflow["jobs"]["conformance"]
    (step,) = (one for one in job["steps"] if "paged-conformance" in one.get("run", ""))
    for entry in job["strategy"]["matrix"]["include"]:
        text = step["run"].replace("${{ matrix.kind }}", entry["kind"])
        text = text.replace("${{ matrix.target }}", entry["target"])
        text = text.replace('"$SECONDS_EACH"', "120").replace('"$SEED"', "0")
        assert "$" not in text
        options = parser().parse_args(shlex.split(text)[1:])
        assert options.kind in SUITES
        assert {path.suffix for path in options.report} <= set(ENDINGS)
        assert "conformance-failures/" in job["steps"][-1]["with"]["path"].split()
        assert str(options.failures) == "conformance-failures"


def test_all_kinds_that_are_there_have_a_contract() -> None:
    kinds, contracts = conformance("kinds"), conformance("contracts")
    assert "{{ conformance contracts }}" in CONTRACTS and "{{ conformance kinds }}" in PAGE
    there = list(suites())
    assert there
    for suite in there:
        assert f"#{suite.kind})" in kinds and f"## {suite.kind}\n" in contracts
        assert suite.contract().strip(), f"{suite.module} has no docstring"
        for prop in suite.properties():
            invariant = f" ({prop.invariant}) |" if prop.invariant else " |"
            sentence = re.escape(" ".join(prop.sentence.split()))
            row = rf"\| `{prop.name}` \| {sentence}{re.escape(invariant)}"
            assert re.search(row, contracts.replace("\\|", "|")), prop.name
            assert set(prop.needs) <= suite.capabilities().keys(), prop.name


@pytest.mark.parametrize("suite", list(suites()), ids=lambda suite: suite.kind)
def test_names_and_sentences_of_properties(suite: Suite) -> None:
    properties = suite.properties()
    names = [prop.name for prop in properties]
    assert len(set(names)) == len(names)
    for prop in properties:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", prop.name), prop.name
        assert prop.sentence.endswith("."), prop.name
        assert prop.invariant is None or re.fullmatch(r"I\d+", prop.invariant), prop.name
