"""The compiled program of every family is as large for 64 layers as for 8, or 16."""

import jax
import pytest

from jax_engine.models.model_loader import abstract_decoder
from tests.golden.families.checkpoints import cases
from tests.models.depths import at_depth
from tests.models.paged import PagedRun
from tests.models.test_families import IN_THE_ENGINE

CASES = cases()
# Eight layers repeat its pattern of four only twice, and XLA simplifies a loop of two turns.
SHALLOW = {"llama4": 16}


def optimised(name: str, num_layers: int) -> str:
    """Optimised HLO of a decode step of a case's family at this depth."""
    model = at_depth(CASES[name]["config"], num_layers)
    assert model.spec.num_layers == num_layers
    graphdef, state = abstract_decoder(model.spec, "float32")
    run = PagedRun(model, graphdef, state)
    arguments = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), run.arguments([3]))
    text = run.step.lower(*arguments).compile().as_text()
    assert text is not None
    return text


@pytest.mark.parametrize("name", IN_THE_ENGINE.values())
@pytest.mark.slow
def test_the_program_of_every_family_is_as_large_for_64_layers_as_for_8(name: str) -> None:
    """Its instructions are. Its text also says where each was traced."""
    programs = [optimised(name, num_layers) for num_layers in (SHALLOW.get(name, 8), 64)]
    shallow, deep = (sum(" = " in line for line in text.splitlines()) for text in programs)
    assert shallow > 100
    assert abs(deep - shallow) < 0.02 * shallow
