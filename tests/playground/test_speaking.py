"""The Llama in plain lists is the oracle's, and its text hangs on the blocks that a table names."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground import speaking
from playground.speaking import BLOCK_SIZE, NUM_BLOCKS, Speaker, model, search, speak
from playground.tiny_llama import BlockMemory, log_softmax
from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache
from reference.transformer import Transformer, TransformerConfig

STORY = "once there was a red fox named ann ."
PARTS = {
    "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v",
    "self_attn.o_proj": "o", "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down",
    "input_layernorm": "attention", "post_attention_layernorm": "mlp",
}  # fmt: skip


def oracle() -> Transformer:
    """The same weights, under Hugging Face's names."""
    tiny = model()
    sizes = tiny.sizes
    config = TransformerConfig(
        len(tiny.words), sizes["width"], sizes["hidden"], sizes["layers"], sizes["heads"],
        sizes["kv_heads"], head_dim=sizes["head_dim"], tie_word_embeddings=True,
    )  # fmt: skip
    weights = {"model.embed_tokens.weight": tiny.weights["embed"], "model.norm.weight": []}
    known: dict[str, Any] = {**tiny.weights, **tiny.norms}
    weights["model.norm.weight"] = tiny.norms["norm"]  # type: ignore[assignment]
    for layer in range(sizes["layers"]):
        for name, short in PARTS.items():
            weights[f"model.layers.{layer}.{name}.weight"] = known[f"{layer}.{short}"]
    arrays = {name: np.array(one, np.float64) for name, one in weights.items()}
    return Transformer(config, arrays, np.float64)


def cache() -> KVCache:
    sizes = model().sizes
    return KVCache(
        num_layers=sizes["layers"], num_blocks=NUM_BLOCKS, num_kv_heads=sizes["kv_heads"],
        block_size=BLOCK_SIZE, head_dim=sizes["head_dim"], dtype=np.float64,
    )  # fmt: skip


@given(st.lists(st.integers(0, len(model().words) - 1), min_size=1, max_size=18), st.data())
def test_it_computes_what_the_oracle_computes(tokens: list[int], data: st.DataObject) -> None:
    """Words, tables and cuts of the prompt are any."""
    table = data.draw(st.permutations(range(5)))
    cut = data.draw(st.integers(0, len(tokens) - 1))
    memory = BlockMemory(num_blocks=5, block_size=4)
    if cut:
        model().forward(tokens[:cut], 0, table, memory)
    found = model().logits(model().forward(tokens[cut:], cut, table, memory))
    reference, places = oracle(), np.arange(len(tokens))
    hidden = reference.forward(
        np.array(tokens), places, cache(), np.array([table]), np.array([len(tokens)]),
        np.array([0, len(tokens)]), np.array([table[p // 4] * 4 + p % 4 for p in places]),
    )  # fmt: skip
    wanted = reference.compute_logits(hidden[-1:])[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def engine(**params: Any) -> Any:
    """What the oracle's engine makes of the story's beginning."""
    made = ReferenceEngine(
        oracle(), cache(), max_num_seqs=8, max_num_batched_tokens=64, max_model_len=72
    )
    defaults: dict[str, Any] = {
        "n": 1, "best_of": None, "min_tokens": 0, "stop_token_ids": [], "ignore_eos": False,
        "seed": None, "temperature": 0.0, "top_n_sigma": 0.0, "top_k": 0, "top_p": 1.0,
        "min_p": 0.0, "logit_bias": None, "repetition_penalty": 1.0, "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
    }  # fmt: skip
    wanted: Any = SimpleNamespace(**(defaults | params))
    made.add_request("a", model().token_ids(STORY), wanted)
    (group,) = made.run()
    return group


def test_it_says_what_the_oracle_s_engine_says() -> None:
    found = speak({"prompt": STORY, "words": 30})
    tokens = engine(max_tokens=30).seqs[0].output_token_ids
    assert [step["word"] for step in found["steps"]] == [model().words[one] for one in tokens]
    assert found["alone"] == [step["word"] for step in found["steps"]]
    assert found["differ"] == 0


@pytest.mark.parametrize("width", [2, 3, 4])
def test_its_beams_are_those_of_the_oracle_s_engine(width: int) -> None:
    found = search({"prompt": STORY, "words": 12, "beams": width})
    group = engine(
        n=width, use_beam_search=True, length_penalty=1.0, early_stopping=False, max_tokens=12,
        stop_token_ids=[model().words.index(".")],
    )  # fmt: skip
    words = [[model().words[token] for token in seq.output_token_ids] for seq in group.best]
    assert [one["words"] for one in found["ended"]] == words
    scores = [seq.score for seq in group.best]
    assert [one["score"] for one in found["ended"]] == pytest.approx(scores)
    assert any(step["copies"] for step in found["steps"])


def test_the_text_is_legible() -> None:
    """It repeats what it was told far above: the name, the animal, its colour, what it likes."""
    for name, colour, animal in (("ann", "red", "fox"), ("leo", "black", "owl")):
        found = speak({"prompt": f"once there was a {colour} {animal} named {name} .", "words": 46})
        text = " ".join(found["alone"])
        assert text.startswith(f"{name} lived in a") or text.startswith(f"{name} slept in a")
        liked = text.split("liked ")[1].split()[0]
        assert f"i like {liked} , said the {colour} {animal} ." in text


@pytest.mark.parametrize("at", [1, 5, 12, 20])
def test_poison_in_free_blocks_and_a_moved_block_change_no_bit(at: int) -> None:
    for event in ("poison", "move"):
        found = speak({"prompt": STORY, "words": 24, "event": event, "at": at})
        assert found["differ"] == 0 and all(step["apart"] == 0.0 for step in found["steps"]), event
        assert [step["word"] for step in found["steps"]] == found["alone"]


@pytest.mark.parametrize("at", [1, 5, 12, 20])
def test_a_block_that_is_freed_too_early_changes_the_text(at: int) -> None:
    found = speak({"prompt": STORY, "words": 40, "event": "free-early", "at": at})
    assert [step["word"] for step in found["steps"]] != found["alone"]
    assert found["differ"] == 40 - at  # from then on, and not before
    apart = [step["apart"] > 0 for step in found["steps"]]
    assert apart == [False] * at + [True] * (40 - at)


def test_free_blocks_may_hold_what_is_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The strictest poison: nothing that is added to it stays a number."""
    speaking._run.cache_clear()
    monkeypatch.setattr(speaking, "POISON", math.nan)
    for event in ("poison", "move"):
        asked = {"prompt": STORY, "words": 16, "event": event, "at": 4}
        assert speak(asked)["differ"] == 0
    speaking._run.cache_clear()


def test_an_event_does_what_it_says() -> None:
    speaker = Speaker()
    tokens = model().token_ids(f"{STORY} ann lived")
    speaker.blocks.allocate_slots(1, tokens, 0, len(tokens))
    speaker.compute(1, tokens, 0)
    before = speaker.blocks.block_table(1)
    (old,) = speaker.happen("move", 1)
    after = speaker.blocks.block_table(1)
    assert [(a, b) for a, b in zip(before, after, strict=True) if a != b] == [(old, after[1])]
    assert speaker.blocks.ref_count(old) == 0 and speaker.holds[old] == ["☠"] * BLOCK_SIZE
    assert speaker.holds[after[1]] == ["red", "fox", "named", "ann"]
    (freed,) = speaker.happen("free-early", 1)
    assert freed in speaker.blocks.block_table(1) and speaker.blocks.ref_count(freed) == 0
    assert sorted(speaker.happen("poison", 1)) == sorted(speaker.blocks.gpu.free_blocks)


def test_changes_put_together_are_the_pool() -> None:
    found = speak({"prompt": STORY, "words": 12, "event": "move", "at": 4})
    pool: dict[int, Any] = {}
    for step in found["steps"]:
        pool |= step["changed"]
        held = [pool[block] for block in step["table"]]
        words = [word for _, *its in held for word in its if word]
        assert all(refs == 1 for refs, *_ in held)
        assert words[: len(found["prompt"])] == found["prompt"]
    assert len(pool) == NUM_BLOCKS


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"prompt": "once a dragon met a fox", "words": 5}, "the model does not know dragon"),
        ({"prompt": " ", "words": 5}, "the prompt must have a word"),
        ({"prompt": "a", "words": 1}, "words must be a whole number from 2 to 60, got 1"),
        ({"prompt": "a " * 30, "words": 43}, "must be at most 72 together, got 73"),
    ],
)
def test_a_wrong_question_has_an_answer(asked: dict[str, Any], error: str) -> None:
    assert error in speak(asked)["error"]
    assert error in search(asked | {"beams": 2})["error"]
    wide = search({"prompt": "a", "words": 5, "beams": 5})["error"]
    assert wide == "beams must be a whole number from 2 to 4, got 5"


def test_log_probabilities_sum_to_one() -> None:
    assert sum(map(math.exp, log_softmax([3.0, -1.0, 700.0, 699.0]))) == pytest.approx(1.0)
