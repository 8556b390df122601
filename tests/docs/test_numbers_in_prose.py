"""Prose of the tutorial that repeats what a cell prints: the numbers are those that it prints."""

import re

import pytest

from scripts.docs_hooks import with_outputs
from scripts.printed_tables import LABEL
from tests.meta.trees import ROOT

TABLE = rf"{LABEL}\n\n(?:\|[^\n]*\n)+"
FENCED = re.compile(rf"^```.*?^```$|^{TABLE}", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(rf'^```text title="prints"\n.*?^```$|^{TABLE}', re.MULTILINE | re.DOTALL)
REPEATED = {
    "scheduler": "66729 111834",
    "beside-orca": "20.9 1.2 5.0 2.1 9.0 2.3 11.9 26.5 46.8 264 642 2.5",
    "reproducing-the-paper": "30.9 42.3 186.1 139.3",
    "symptoms": "24989 27623 23695 405 2978 5696",
    "why-cache": "4.8 7.3 32 123 295 153",
    "why-memory": "15728 45",
}
"""By page, what it says again."""


def _numbers(text: str) -> set[str]:
    return {found.replace(",", "") for found in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.slow
def test_prose_repeats_what_cells_print(name: str) -> None:
    page = with_outputs((ROOT / "docs" / "tutorial" / f"{name}.md").read_text("utf-8"))
    prose, printed = _numbers(FENCED.sub("", page)), _numbers(" ".join(PRINTED.findall(page)))
    repeated = _numbers(REPEATED[name])
    assert repeated <= prose, "the page says it no more"
    assert repeated <= printed
