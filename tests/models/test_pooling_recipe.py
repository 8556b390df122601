"""Embeddings are made as the model's own files say: sentence-transformers' and a GGUF file's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine import LLM, InvalidRequestError, PoolingParams, SamplingParams
from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_source import config_from_gguf
from jax_engine.models.model_config import PoolingRecipe, recipe_of_directory
from tests.engine.test_prompt_states import hidden_states
from tests.models.test_gguf import write_gguf
from tests.support.tiny_llama import tiny_llama

PREFIX = "sentence_transformers.models."
FLAGS = {
    "pooling_mode_cls_token": "CLS",
    "pooling_mode_lasttoken": "LAST",
    "pooling_mode_max_tokens": "MAX",
    "pooling_mode_mean_tokens": "MEAN",
    "pooling_mode_mean_sqrt_len_tokens": "MEAN_SQRT_LEN",
    "pooling_mode_weightedmean_tokens": "WEIGHTEDMEAN",
}


def modules(*kinds: str) -> list[dict[str, Any]]:
    return [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": PREFIX + kind}
        for i, kind in enumerate(kinds)
    ]


def write(directory: Path, **files: Any) -> Path:
    """Files by their names, in which __ stands for a slash."""
    for name, content in files.items():
        path = directory / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return directory


def pooling(**flags: bool) -> dict[str, Any]:
    off = dict.fromkeys(FLAGS, False)
    return {"word_embedding_dimension": 20, **off, "include_prompt": True, **flags}


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("scaled", [True, False])
def test_the_recipe_of_modules(flag: str, scaled: bool, tmp_path: Path) -> None:
    listed = modules("Transformer", "Pooling", *(["Normalize"] if scaled else []))
    write(tmp_path, modules=listed, **{"1_Pooling__config": pooling(**{flag: True})})
    wanted: Any = FLAGS[flag]
    assert recipe_of_directory(tmp_path) == PoolingRecipe(wanted, normalize=scaled)


def test_other_forms_of_the_files(tmp_path: Path) -> None:
    assert recipe_of_directory(tmp_path) == PoolingRecipe()
    new = {"pooling_mode": "mean", "embedding_dimension": 20}
    write(tmp_path, **{"1_Pooling__config": new})  # without modules.json
    assert recipe_of_directory(tmp_path) == PoolingRecipe("MEAN", normalize=True)
    listed = [
        {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""},
        {"type": "sentence_transformers.x.Pooling", "path": "pool"},
    ]
    write(tmp_path, modules=listed, pool__config={"pooling_mode": ["lasttoken"]})
    assert recipe_of_directory(tmp_path) == PoolingRecipe("LAST", normalize=False)
    write(tmp_path, sentence_bert_config={"max_seq_length": 7, "do_lower_case": False})
    prompts = {"prompts": {"query": "Q: "}, "default_prompt_name": None}
    write(tmp_path, config_sentence_transformers=prompts)
    assert recipe_of_directory(tmp_path) == PoolingRecipe("LAST", normalize=False, max_tokens=7)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"modules": modules("Transformer", "Pooling", "Dense", "Normalize")}, "Dense (2_Dense)"),
        ({"modules": modules("Transformer", "Pooling", "LayerNorm")}, "LayerNorm (2_LayerNorm)"),
        ({"modules": modules("Transformer")}, "modules.json has Transformer; known"),
        ({"modules": modules("Transformer", "Normalize", "Pooling")}, "Transformer, Normalize, Po"),
        ({"modules": modules("Transformer", "Pooling"), "1_Pooling__config": None}, "is missing"),
        (
            {
                "1_Pooling__config": pooling(
                    pooling_mode_cls_token=True, pooling_mode_mean_tokens=True
                )
            },
            "['cls', 'mean'] is not",
        ),
        ({"1_Pooling__config": pooling(pooling_mode_mean_tokens=False)}, "pooling [] is not"),
        ({"1_Pooling__config": {"pooling_mode": "attention"}}, "['attention'] is not"),
        ({"sentence_bert_config": {"do_lower_case": True}}, "do_lower_case true"),
        (
            {
                "config_sentence_transformers": {
                    "prompts": {"query": "Find: ", "document": ""},
                    "default_prompt_name": "query",
                }
            },
            "puts the prompt 'Find: ' before each text",
        ),
    ],
)
def test_what_the_engine_does_not_make(files: Any, reason: str, tmp_path: Path) -> None:
    whole = {
        "modules": modules("Transformer", "Pooling", "Normalize"),
        "1_Pooling__config": pooling(pooling_mode_mean_tokens=True),
    }
    write(tmp_path, **{name: one for name, one in (whole | files).items() if one is not None})
    found = recipe_of_directory(tmp_path).refused
    assert found is not None and reason in found


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules", {}, r"modules\.json is unreadable: Expected `array`"),
        ("modules", [{"path": ""}], r"modules\.json is unreadable: .*`type`"),
        ("1_Pooling__config", {"pooling_mode": 5}, r"config\.json: pooling_mode must be .* got 5"),
        ("sentence_bert_config", {"max_seq_length": 0}, "max_seq_length must be .* got 0"),
    ],
)
def test_damaged_files(file: str, content: Any, message: str, tmp_path: Path) -> None:
    write(tmp_path, **{file: content})
    with pytest.raises(WeightsError, match=message):
        recipe_of_directory(tmp_path)


@pytest.mark.parametrize(
    ("number", "way"), [(None, "LAST"), (0, "LAST"), (1, "MEAN"), (2, "CLS"), (3, "LAST")]
)
def test_the_recipe_of_a_gguf_file(number: int | None, way: Any, tmp_path: Path) -> None:
    extra = {} if number is None else {"llama.pooling_type": number}
    file = GgufFile(write_gguf(tmp_path / "m.gguf", extra=extra))
    assert config_from_gguf(file).pooling == PoolingRecipe(way)


def test_a_gguf_file_that_ranks_makes_no_embeddings(tmp_path: Path) -> None:
    file = GgufFile(write_gguf(tmp_path / "m.gguf", extra={"llama.pooling_type": 4}))
    assert (
        config_from_gguf(file).pooling.refused == "pooling_type 4 is not supported; known: 0 to 3"
    )


SETTINGS: dict[str, Any] = {
    "skip_tokenizer_init": True, "block_size": 4, "num_gpu_blocks_override": 60,
    "max_model_len": 40, "max_num_batched_tokens": 7,
}  # fmt: skip
PROMPTS = [[3, 4, 5, 6, 7, 8, 9, 10, 11], [12], [5, 4]]


@pytest.mark.parametrize(
    ("flag", "pool"),
    [
        ("pooling_mode_mean_tokens", lambda states: states.mean(0)),
        ("pooling_mode_cls_token", lambda states: states[0]),
        ("pooling_mode_max_tokens", lambda states: states.max(0)),
        (
            "pooling_mode_weightedmean_tokens",
            lambda states: np.average(states, axis=0, weights=np.arange(1, len(states) + 1)),
        ),
    ],
)
@pytest.mark.parametrize("scaled", [True, False])
def test_an_engine_embeds_by_the_recipe(flag: str, pool: Any, scaled: bool, tmp_path: Path) -> None:
    """The oracle's states, pooled here; prompts longer than a step, alone and beside others."""
    path, transformer = tiny_llama(tmp_path / "tiny")
    listed = modules("Transformer", "Pooling", *(["Normalize"] if scaled else []))
    write(path, modules=listed, **{"1_Pooling__config": pooling(**{flag: True})})
    write(path, sentence_bert_config={"max_seq_length": 9})
    llm = LLM(str(path), **SETTINGS)
    for prompt, output in zip(PROMPTS, llm.embed(PROMPTS, use_tqdm=False), strict=True):
        wanted = pool(hidden_states(transformer, prompt))
        wanted = wanted / np.linalg.norm(wanted) if scaled else wanted
        np.testing.assert_allclose(output.outputs.embedding, wanted, atol=1e-4)
    (raw,) = llm.embed([PROMPTS[0]], PoolingParams(pooling_type="LAST", normalize=False))
    np.testing.assert_allclose(
        raw.outputs.embedding, hidden_states(transformer, PROMPTS[0])[-1], atol=1e-4
    )
    with pytest.raises(InvalidRequestError, match=r"at most 9 tokens, .* got 10"):
        llm.embed([[3] * 10])
    assert llm.generate([[3] * 10], SamplingParams(max_tokens=1), use_tqdm=False)[0].finished


def test_an_engine_refuses_what_it_cannot_make_and_generates(tmp_path: Path) -> None:
    path, _ = tiny_llama(tmp_path / "tiny")
    write(path, modules=modules("Transformer", "Pooling", "Dense"))
    llm = LLM(str(path), **SETTINGS)
    for call in (llm.embed, llm.encode):
        with pytest.raises(InvalidRequestError, match=r"Dense \(2_Dense\).*name a pooling_type"):
            call([[3, 4]])
    with pytest.raises(InvalidRequestError, match="Dense"):
        llm.score([[3, 4]], [[5]])
    llm.embed([[3, 4]], PoolingParams(pooling_type="MEAN"))
    assert llm.generate([[3]], SamplingParams(max_tokens=1), use_tqdm=False)[0].finished
