"""Encoders beside transformers: states, pairs, scores; and what is refused of their checkpoints."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_engine import LLM, ConfigError, PoolingParams, WeightsError
from jax_engine.models.registry import ENCODERS, config_from_hf
from tests.golden.families.encoders import PROMPT, cases, goldens, types_of, write
from tests.support.tiny_encoders import BERT, tiny_encoder, with_scores

CASES, GOLDENS = cases(), goldens()
TOLERANCE = 1e-4  # relative to the largest number
RAW: dict[str, Any] = {"normalize": False, "use_activation": False}


def opened(folder: Path, **settings: Any) -> LLM:
    return LLM(str(folder), dtype="float32", skip_tokenizer_init=True, max_num_seqs=4, **settings)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("name", CASES)
def test_states_and_scores_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """One text, and two of them if tokens have types."""
    case = CASES[name]
    llm = opened(write(case, tmp_path))
    head, types = llm.llm_engine.head, types_of(case["config"])
    prompts: list[Any] = [{"prompt_token_ids": PROMPT}]
    if types is not None:
        prompts.append({"prompt_token_ids": PROMPT, "token_type_ids": types})
    states = llm.encode(prompts, PoolingParams(task="token_embed", **RAW), use_tqdm=False)
    for which, one in zip(("", ".typed"), states, strict=False):
        close(one.outputs.data, GOLDENS[f"{name}{which}.states"])
    if head is not None:
        scores = llm.encode(prompts, PoolingParams(**RAW), use_tqdm=False)
        for which, one in zip(("", ".typed"), scores, strict=False):
            close(one.outputs.data, GOLDENS[f"{name}{which}.logits"])


@pytest.mark.parametrize("name", ["bert", "modernbert", "nomic"])
def test_a_compiled_step_copies_neither_states_nor_weights(name: str, tmp_path: Path) -> None:
    """Without a rotation, attention reads its operand where the projection left it."""
    llm = opened(write(CASES[name], tmp_path))
    program = llm.llm_engine.worker._compile(64).as_text()  # type: ignore[attr-defined]
    kinds = "copy|transpose" + "|concatenate" * (name == "bert")
    assert re.findall(rf"= (\S+\[[1-9]\d*,[\d,]+\]\S*) ({kinds})\(", program) == []


def test_every_architecture_has_a_case() -> None:
    """Or is a name for what another one is, too."""
    found = {case["config"]["architectures"][0] for case in CASES.values()}
    assert {ENCODERS[one] for one in found & ENCODERS.keys()} == {*ENCODERS.values()}
    scored = {config_from_hf(CASES[n]["config"]).architecture for n in CASES if "scores" in n}
    assert {ENCODERS[one] for one in scored} == {*ENCODERS.values()}


PUBLISHED: dict[str, Any] = {
    "architectures": ["NomicBertModel"], "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_inner": 3072, "n_positions": 8192, "max_trained_positions": 2048, "vocab_size": 30528,
    "activation_function": "swiglu", "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0, "prenorm": False, "qkv_proj_bias": False, "type_vocab_size": 2,
}  # fmt: skip


def test_the_published_names_of_nomic_s_fields() -> None:
    """Texts are as long as those it was trained on, not as its table is."""
    ours = {"architectures": ["NomicBertModel"], "max_position_embeddings": 2048}
    assert config_from_hf(PUBLISHED).spec == config_from_hf(ours | {"vocab_size": 30528}).spec


def test_older_fields_of_modernbert() -> None:
    """Published files name the two bases beside each other, and no types of layers."""
    small = {k: v for k, v in BERT.items() if k != "max_position_embeddings"}
    small |= {"architectures": ["ModernBertModel"], "num_hidden_layers": 4}
    older = small | {"global_rope_theta": 5000.0, "local_rope_theta": 77.0}
    ropes = {
        f"{kind}_attention": {"rope_type": "default", "rope_theta": theta}
        for kind, theta in (("full", 5000.0), ("sliding", 77.0))
    }
    assert config_from_hf(older).spec == config_from_hf(small | {"rope_parameters": ropes}).spec
    types = ["full_attention", *["sliding_attention"] * 2, "full_attention"]
    assert config_from_hf(small).spec == config_from_hf(small | {"layer_types": types}).spec
    assert (
        config_from_hf(small).spec
        != config_from_hf(small | {"layer_types": [*types[1:], types[0]]}).spec
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"architectures": ["BertModel"], "is_decoder": True}, "is_decoder True"),
        ({"architectures": ["BertModel"], "position_embedding_type": "relative_key"}, "relative"),
        ({"architectures": ["BertModel"], "hidden_act": "mish"}, "hidden_act 'mish'"),
        ({"architectures": ["RobertaModel"], "pad_token_id": 511}, r"pad_token_id \+ 1 \(512\)"),
        ({"architectures": ["ModernBertModel"], "layer_types": ["full_attention"]}, "has 1 layers"),
        (
            {"architectures": ["ModernBertForSequenceClassification"], "classifier_pooling": "max"},
            "classifier_pooling 'max'",
        ),
        (PUBLISHED | {"prenorm": True}, "prenorm True"),
        (PUBLISHED | {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction 0.5"),
        (PUBLISHED | {"rotary_scaling_factor": 2.0}, "rotary_scaling_factor 2.0"),
        (PUBLISHED | {"moe_every_n_layers": 2}, "moe_every_n_layers 2"),
        (PUBLISHED | {"activation_function": "gelu"}, "activation_function 'gelu'"),
        (
            {
                "architectures": ["BertForSequenceClassification"],
                "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"},
            },
            "known: torch.nn.modules.linear.Identity",
        ),
        ({"architectures": ["BertModle"]}, "The nearest name is BertModel"),
    ],
)  # fmt: skip
def test_variants_that_are_not_computed(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_from_hf(config)


@pytest.mark.parametrize(
    ("without", "extra", "words"),
    [
        ("classifier.weight", {}, "there is no tensor classifier.weight"),
        ("bert.pooler.dense.weight", {}, "there is no tensor bert.pooler.dense.weight"),
        ("bert.embeddings.LayerNorm.bias", {}, "1 of .* tensors are missing"),
        (None, {"bert.encoder.layer.0.adapter.weight": (2,)}, "have no place"),
        (None, {"classifier.weight": (3, 7)}, "expected shape"),
    ],
)  # fmt: skip
def test_damaged_checkpoints(
    without: str | None, extra: dict[str, Any], words: str, tmp_path: Path
) -> None:
    folder, _ = with_scores(tiny_encoder(tmp_path)[0], labels=3)
    file = folder / "model.safetensors"
    tensors = {name: one for name, one in load_file(file).items() if name != without}
    save_file(tensors | {k: np.zeros(v, np.float32) for k, v in extra.items()}, file)
    with pytest.raises(WeightsError, match=words):
        opened(folder)


def renamed(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By the names that the first files of BERT have."""
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    found = {}
    for name, one in tensors.items():
        for present, past in old.items():
            name = name.replace(present, past)
        found[name] = one
    return found


@pytest.mark.parametrize("bare", [True, False])
def test_gamma_and_beta_are_weight_and_bias(bare: bool, tmp_path: Path) -> None:
    """The model has such names, and so has the head that guessed words: no embedding needs it."""
    folder, prompt = tiny_encoder(tmp_path)[0], [{"prompt_token_ids": [5, 6, 7, 8]}]
    file = folder / "model.safetensors"
    states = PoolingParams(task="token_embed", **RAW)
    (expected,) = opened(folder).encode(prompt, states, use_tqdm=False)
    tensors = renamed(load_file(file))
    assert sum(name.endswith(("gamma", "beta")) for name in tensors) == 10
    if not bare:
        tensors = {f"bert.{name}": one for name, one in tensors.items()}
        for kind in ("gamma", "beta"):
            tensors[f"cls.predictions.transform.LayerNorm.{kind}"] = np.zeros(3, np.float32)
    save_file(tensors, file)
    (found,) = opened(folder).encode(prompt, states, use_tqdm=False)
    assert np.array_equal(found.outputs.data, expected.outputs.data)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"embeddings.LayerNorm.weight": (36,)}, r"no place.*embeddings\.LayerNorm\.gamma first"),
        ({"embeddings.LayerNorm.gamma": (35,)}, r"tensor embeddings\.LayerNorm\.gamma: expected"),
        ({"embeddings.LayerNorm.gammas": (36,)}, r"no place.*LayerNorm\.gammas first"),
    ],
)
def test_old_names_in_messages(extra: dict[str, Any], words: str, tmp_path: Path) -> None:
    """A scale under both names is one too many; a wrong one is called as in the file."""
    file = tiny_encoder(tmp_path)[0] / "model.safetensors"
    added = {name: np.zeros(shape, np.float32) for name, shape in extra.items()}
    save_file(renamed(load_file(file)) | added, file)
    with pytest.raises(WeightsError, match=words):
        opened(tmp_path)


def test_a_head_of_dummy_weights(tmp_path: Path) -> None:
    """Only config.json is read; every kind of head has numbers."""
    for architecture in ("Bert", "Roberta", "ModernBert", "NomicBert"):
        config = BERT | {"architectures": [f"{architecture}ForSequenceClassification"]}
        (tmp_path / "config.json").write_text(json.dumps(config))
        llm = opened(tmp_path, load_format="dummy", max_model_len=64)
        (one,) = llm.classify([[5, 6, 7]], use_tqdm=False)
        assert len(one.outputs.probs) == 2 and abs(sum(one.outputs.probs) - 1) < 1e-6
