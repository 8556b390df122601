"""The tensors that a family's declaration asks for are those that transformers writes."""

from typing import Any

import pytest

from jax_engine.models.leaves import abstract_leaves, transforms_of
from jax_engine.models.model_loader import abstract_decoder
from jax_engine.models.registry import config_from_hf, family_of
from tests.golden.families.checkpoints import cases
from tests.golden.families.isomorphs import ISOMORPHS, isomorph

CASES = cases()


def asked_for(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors that a model with this config.json is loaded from, each with its shape."""
    family, spec = family_of(config["architectures"][0]), config_from_hf(config).spec
    leaves = abstract_leaves(abstract_decoder(spec, "float32")[1], spec)
    found = {}
    for leaf, transform in transforms_of(leaves, family.weights(spec)).items():
        found.update(leaves[leaf].tensors(transform))
    return found


@pytest.mark.parametrize("name", CASES)
def test_each_tensor_is_asked_for_with_its_shape(name: str) -> None:
    """All of them and no other. Nothing is computed, so that a wrong name or size is seen at
    once, in any family."""
    written = CASES[name]["tensors"]
    assert asked_for(CASES[name]["config"]) == {one: tuple(written[one]) for one in written}


@pytest.mark.parametrize("name", ISOMORPHS)
def test_so_is_each_of_a_family_without_a_class(name: str) -> None:
    _, config, tensors = isomorph(name)
    assert asked_for(config) == {one: array.shape for one, array in tensors.items()}
