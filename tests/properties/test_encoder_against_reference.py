"""An encoder in the engine gives the oracle's vectors, and a text's bits depend on the text."""

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import LLM, PoolingParams
from reference.encoder import Encoder, pool
from tests.support.tiny_encoders import VOCABULARY, tiny_encoder

LONGEST = 260
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {}),
    "relu": ("bert", {"hidden_act": "relu", "layer_norm_eps": 0.01, "num_attention_heads": 12}),
    "modernbert": ("modernbert", {"num_hidden_layers": 5, "local_attention": 11}),
    "one layer": ("modernbert", {"num_hidden_layers": 1, "num_attention_heads": 2}),
    "nomic": ("nomic", {"num_attention_heads": 2}),
}
# Limits of steps: many texts at once, or few.
STEPS: dict[str, dict[str, Any]] = {
    "wide": {"max_num_seqs": 8, "max_num_batched_tokens": 512},
    "narrow": {"max_num_seqs": 2, "max_num_batched_tokens": LONGEST},
}


@functools.cache
def model(kind: str) -> tuple[Path, Encoder]:
    """One checkpoint of a kind, for the whole session."""
    layout, fields = KINDS[kind]
    folder = Path(tempfile.mkdtemp())
    return tiny_encoder(folder, layout, seed=len(kind), **fields)


@functools.cache
def engine(kind: str, steps: str) -> LLM:
    settings: dict[str, Any] = {"dtype": "float32", "skip_tokenizer_init": True}
    return LLM(str(model(kind)[0]), max_model_len=LONGEST, **settings, **STEPS[steps])


@st.composite
def texts(draw: st.DrawFn, kind: str) -> list[dict[str, Any]]:
    """A few texts, short or around the borders of tiles, some of them pairs."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, 30) | st.sampled_from([127, 128, 129, 192, 193, LONGEST]))
        seed = draw(st.integers(0, 2**16))
        ids = np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()
        prompt: dict[str, Any] = {"prompt_token_ids": ids}
        if KINDS[kind][0] != "modernbert" and draw(st.booleans()):
            second = draw(st.integers(0, length))
            prompt["token_type_ids"] = [0] * second + [1] * (length - second)
        found.append(prompt)
    return found


def vectors(kind: str, steps: str, prompts: list[Any], **params: Any) -> list[np.ndarray]:
    given = PoolingParams(**params)
    outputs = engine(kind, steps).encode(prompts, given, use_tqdm=False)
    return [one.outputs.data for one in outputs]


@given(
    data=st.data(), kind=st.sampled_from(list(KINDS)), way=st.sampled_from(["CLS", "LAST", "MEAN"])
)
def test_vectors_are_the_oracle_s(data: st.DataObject, kind: str, way: Any) -> None:
    prompts = data.draw(texts(kind))
    normalize = data.draw(st.booleans())
    found = vectors(kind, "wide", prompts, pooling_type=way, normalize=normalize, task="embed")
    oracle = model(kind)[1]
    for prompt, vector in zip(prompts, found, strict=True):
        types = prompt.get("token_type_ids")
        states = oracle.states(
            np.array(prompt["prompt_token_ids"]), None if types is None else np.array(types)
        )
        expected = pool(states, way, normalize=normalize)
        np.testing.assert_allclose(vector, expected, atol=2e-4 * np.abs(expected).max())


@given(data=st.data(), kind=st.sampled_from(list(KINDS)))
def test_a_text_has_the_same_bits_in_any_company(data: st.DataObject, kind: str) -> None:
    """Alone, with others, and in steps of other limits; each of its states."""
    prompts = data.draw(texts(kind))
    task = data.draw(st.sampled_from(["embed", "token_embed"]))
    alone = [vectors(kind, "wide", [one], task=task)[0] for one in prompts]
    for steps in STEPS:
        for one, other in zip(alone, vectors(kind, steps, prompts, task=task), strict=True):
            np.testing.assert_array_equal(one, other)
