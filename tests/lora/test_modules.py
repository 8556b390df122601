"""The names of a model's modules are the checkpoint's, and their shapes those of its tensors."""

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.lora.adapted_leaves import adapted_leaves
from jax_engine.lora.modules import is_turned, modules_of
from jax_engine.models.leaves import abstract_leaves
from jax_engine.models.model_loader import abstract_decoder, load_model
from jax_engine.models.registry import config_from_hf
from jax_engine.weights.transforms import Heads, Stack, Transpose, split, transform_of
from reference.lora import merged_weights
from tests.golden.families.checkpoints import tensors_of as checkpoint_of
from tests.lora.adapters import PLAIN, modules, read, tensors_of
from tests.models.checkpoints import write_checkpoint
from tests.models.test_families import CASES

TURNED = ("c_attn", "c_proj", "c_fc")  # GPT-2's
TURNED_EXPERTS = ("GptOssForCausalLM", "Llama4ForCausalLM")


@pytest.mark.parametrize("case", sorted(CASES))
def test_each_matrix_of_a_checkpoint_is_a_module(case: str) -> None:
    config, tensors = config_from_hf(CASES[case]["config"]), checkpoint_of(CASES[case])
    found = modules_of(config).by_name
    for name, one in found.items():
        if one.kind == "head" and config.spec.tied:
            assert (one.out_size, one.in_size) == (config.vocab_size, config.hidden_size)
            continue
        assert "norm" not in name
        shape = (one.out_size, one.in_size)
        turned = one.kind == "embedding"
        turned |= config.architecture == "GPT2LMHeadModel" and name.endswith(TURNED)
        turned |= config.architecture in TURNED_EXPERTS and name.endswith("]")
        tensor, _, expert = name.removesuffix("]").partition("[")
        stored = tensors[tensor] if tensor in tensors else tensors[f"{tensor}.weight"]
        stored = stored[int(expert)] if expert else stored
        assert stored.shape == (shape[::-1] if turned else shape), name
    stems = {name.partition("[")[0] for name in found}
    others = {
        name
        for name, tensor in tensors.items()
        if tensor.ndim > 1 and name.removesuffix(".weight") not in stems
    }
    # Positions, and norms of heads: no adapter changes those. And biases of experts.
    known = (".wpe.", "embed_positions", "q_norm", "k_norm", "layernorm", "_ln.", "_bias")
    assert all(any(part in name for part in known) for name in others), others


@pytest.mark.parametrize(
    "case", ["gpt2", "gpt_neox", "phi3", "falcon_40b", "minicpm3", "gemma2", "qwen2"]
)
def test_a_merged_model_loads(case: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The oracle's merged weights are a checkpoint of the same model, and not the same numbers."""
    config = CASES[case]["config"]
    of, tensors = modules_of(config_from_hf(config)), checkpoint_of(CASES[case])
    names = [name for name in of.by_name if f"{name}.weight" in tensors]
    adapter = read(tensors_of(names, of=of), of=of)
    turned = [name for name in names if of.by_name[name].kind == "embedding"]
    if config["architectures"] == ["GPT2LMHeadModel"]:
        turned += [name for name in names if name.endswith(TURNED)]
    merged = merged_weights(tensors, adapter.modules, turned)
    assert all(not np.array_equal(merged[f"{name}.weight"], tensors[f"{name}.weight"])
               for name in names)  # fmt: skip
    single = {name: tensor.astype(np.float32) for name, tensor in merged.items()}
    folder = tmp_path_factory.mktemp("merged")
    assert load_model(str(write_checkpoint(folder, config, single))).num_parameters > 0


@pytest.mark.parametrize("case", sorted(CASES))
def test_every_module_is_a_part_of_a_product_that_adapters_change(case: str) -> None:
    config = config_from_hf(CASES[case]["config"])
    _, state = abstract_decoder(config.spec, jnp.float32)
    leaves = adapted_leaves(config, abstract_leaves(state, config.spec), 1, 8)
    computed = {name for leaf in leaves for names in leaf.modules for name in names}
    assert computed == modules_of(config).by_name.keys()


def test_the_modules_of_a_llama() -> None:
    assert modules().by_name == PLAIN == modules("tied").by_name


def test_which_matrices_are_stored_turned() -> None:
    """GPT-2's; not those of heads, of which latent attention turns a part."""
    for declared, turned in (
        ("a", False),
        (Transpose("a"), True),
        (Stack("layer", range(2), Transpose("a")), True),
        (Stack("layer", range(2), Transpose(split(Heads("a"), 0, 1, 2, axis=1))), False),
    ):
        assert is_turned(transform_of(declared)) == turned


def test_names_are_found_or_the_nearest_are_said() -> None:
    of = modules()
    name = "model.layers.0.self_attn.q_proj"
    assert of.named(name) == name == of.named(name.removeprefix("model."))
    assert of.named("layers.0") is None is of.named("q_proj")
    assert of.nearest(name.replace("q_", "w_")).split(", ")[0] in of.by_name
    assert of.nearest("?") == ", ".join(sorted(of.by_name)[:3])
