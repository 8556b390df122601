"""SmolLM2-135M-Instruct in float32 answers as PyTorch transformers did (tests/golden)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_source import GgufSource, config_from_gguf
from jax_engine.models.model_loader import load_model
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from reference.kv_cache import KVCache
from reference.transformer import Transformer, TransformerConfig
from tests.golden import tiny_checkpoints
from tests.models.paged import PagedRun

pytestmark = pytest.mark.model
GOLDEN = json.loads(Path(tiny_checkpoints.__file__).with_name("smollm2.json").read_text())
BY_PROMPT = {answer["prompt"]: answer for answer in GOLDEN["answers"]}


@pytest.fixture(scope="module")
def tokenizer(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(smollm2_path)


@pytest.fixture(scope="module")
def run(smollm2_path: Path) -> PagedRun:
    model = load_model(str(smollm2_path))
    return PagedRun(model.config, model.graphdef, model.params, block_size=16, num_blocks=8)


@pytest.mark.parametrize("answer", GOLDEN["answers"], ids=lambda answer: answer["prompt"][:24])
def test_greedy_completions(answer: dict[str, Any], run: PagedRun, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(answer["prompt"])
    assert ids == answer["prompt_ids"]
    run.reset()
    for token in ids[:-1]:  # one by one, so that a single shape is compiled
        run.feed([token])
    tokens = run.greedy(ids[-1:], len(answer["ids"]))
    assert tokens == answer["ids"]
    assert tokenizer.decode(tokens, skip_special_tokens=False) == answer["text"]


def test_the_chat_turn_is_rendered_as_transformers_did(tokenizer: Tokenizer) -> None:
    text = tokenizer.apply_chat_template(GOLDEN["chat"], tokenize=False, add_generation_prompt=True)
    assert text in BY_PROMPT


@pytest.mark.slow
def test_the_reference_gives_the_same_tokens(smollm2_path: Path) -> None:
    answer = BY_PROMPT["The capital of France is"]
    prompt, follow = answer["prompt_ids"], answer["ids"][:4]
    model = oracle(smollm2_path)
    length = len(prompt) + len(follow) - 1
    cache = KVCache(num_layers=30, num_blocks=1, num_kv_heads=3, block_size=length, head_dim=64)
    every, one_block = np.arange(length), np.array([[0]])
    hidden = model.forward(
        np.array(prompt + follow[:-1]),
        every,
        cache,
        one_block,
        np.array([length]),
        np.array([0, length]),
        slot_mapping=every,
    )
    logits = model.compute_logits(hidden[len(prompt) - 1 :])
    assert logits.argmax(-1).tolist() == follow


def oracle(path: Path) -> Transformer:
    """The reference decoder with SmolLM2's weights."""
    file = GgufFile(path)
    config = config_from_gguf(file)
    source = GgufSource(file, config)
    weights = {}
    for name in source.names():
        weights[name] = np.empty(source.shape(name), np.float32)
        source.read_into(name, weights[name])
    spec = config.spec
    (attention,), (layer,) = spec.attentions, spec.layers
    fields = TransformerConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.width,
        intermediate_size=layer.mlp.width,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=attention.num_heads,
        num_key_value_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        rms_norm_eps=spec.norm.eps,
        rope_theta=attention.ropes[0].theta,
        max_position_embeddings=spec.max_context_len,
        tie_word_embeddings=True,
    )
    return Transformer(fields, weights)
