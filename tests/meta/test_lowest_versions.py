"""`constraints-lowest.txt`, with which `.ci/lowest` runs, is what `pyproject.toml` promises."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.meta.trees import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# What everything but GGUF files and guided requests runs without.
LEFT_OUT = {"gguf", "llguidance"}


def pins() -> dict[str, str]:
    text = (ROOT / "constraints-lowest.txt").read_text("utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))


def test_each_dependency_is_at_its_lower_bound() -> None:
    """A bound that does not install together with the others is a promise that does not hold."""
    wanted = [Requirement(line) for line in PROJECT["dependencies"]]
    bounds = {
        canonicalize_name(one.name): Version(part.version)
        for one in wanted
        for part in one.specifier
        if part.operator == ">="
    }
    assert len(bounds) == len(wanted)
    lowest = {name: Version(version) for name, version in pins().items() if name in bounds}
    assert lowest == {name: bound for name, bound in bounds.items() if name not in LEFT_OUT}


def test_what_a_machine_with_a_gpu_lacks_is_lacking() -> None:
    assert not {*LEFT_OUT, "beartype"} & set(pins())
