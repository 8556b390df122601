"""Every file of families/ is in the registry, and is imported when a model asks for it."""

import difflib
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jax_engine.errors import ConfigError
from jax_engine.models import families
from jax_engine.models.registry import FOLDER, KNOWN, family_of

# What several families have in common.
SHARED = {"alibi", "changed", "experts", "hf_config", "latent", "neighbours"}


def test_every_file_of_a_family_is_in_the_registry() -> None:
    files = {path.stem for path in Path(families.__path__[0]).glob("[a-z]*.py")}
    assert {*KNOWN.values()} == files - SHARED


@pytest.mark.parametrize("architecture", KNOWN)
def test_each_entry_has_what_the_loader_needs(architecture: str) -> None:
    family = family_of(architecture)
    assert issubclass(family.Fields, msgspec.Struct)
    assert callable(family.specification) and callable(family.weights)


@pytest.mark.parametrize("architecture", KNOWN)
def test_a_misspelt_name_is_told_the_nearest(architecture: str) -> None:
    wrong = architecture.replace("For", "Four").replace("Model", "Modes")
    (nearest,) = difflib.get_close_matches(wrong, KNOWN, n=1)
    expected = f"known: .*{architecture}.*The nearest name is {nearest}"
    with pytest.raises(ConfigError, match=expected):
        family_of(wrong)


@pytest.mark.slow
def test_a_model_imports_its_own_family_and_no_other() -> None:
    code = f"""
import sys
import jax_engine.llm
from jax_engine.models.registry import FAMILIES, family_of

def imported():
    return [one for one in FAMILIES.values() if "{FOLDER}." + one in sys.modules]

assert imported() == [], imported()
family_of("MistralForCausalLM")
assert "mistral" in imported() and "qwen3" not in imported(), imported()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
