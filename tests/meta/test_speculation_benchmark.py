"""The benchmarks of guesses: forced shares, rules of acceptance, rows of the comparison."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from benchmarks.compare.checkpoint import TINY, tiny_directory
from benchmarks.speculation import measure, texts
from benchmarks.speculation.coupling import agreements, distributions, softmax, without_layers
from benchmarks.speculation.forced import Known, forced
from benchmarks.speculation.peers import WITH, rows
from jax_engine import LLM, SamplingParams

SETTINGS = {
    "load_format": "dummy", "skip_tokenizer_init": True, "max_model_len": 64, "max_num_seqs": 2,
    "num_gpu_blocks_override": 16, "enable_prefix_caching": False,
}  # fmt: skip
PROMPTS = [[5, 6, 7, 8], [9, 10, 11]]


def tiny(folder: Path, **settings: object) -> LLM:
    return LLM(str(tiny_directory(folder)), **SETTINGS, **settings)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_forced_share_of_guesses_is_right(tmp_path: Path) -> None:
    """13 tokens behind the first: 4 a step while 3 guesses are right; then one at a time."""
    plain, params = tiny(tmp_path), SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True)
    known = Known()
    always = tiny(tmp_path, speculative_config=forced(known, 1.0, 3))
    found = measure.one_by_one(plain, always, PROMPTS, params, known)
    assert found["accepted_percent"] == 100 and found["tokens_per_step"] == pytest.approx(13 / 4)
    never = tiny(tmp_path, speculative_config=forced(known, 0.0, 3))
    found = measure.one_by_one(plain, never, PROMPTS, params, known)
    assert found["accepted_percent"] == 0 and found["tokens_per_step"] == 1
    assert found["speed_ratio"] == pytest.approx(
        found["tokens_per_s"] / found["plain_tokens_per_s"], rel=0.1
    )


@pytest.mark.slow
def test_requests_at_once_are_timed_in_pairs(tmp_path: Path) -> None:
    plain, guessing = tiny(tmp_path), tiny(tmp_path, speculative_config={"method": "ngram"})
    params = [SamplingParams(temperature=1.0, seed=i, max_tokens=9) for i in range(2)]
    found = measure.together(plain, guessing, [PROMPTS, PROMPTS], params)
    assert found.keys() == {"plain_tokens_per_s", "median_speed_ratio"}
    assert all(value > 0 for value in found.values())


def test_each_kind_of_text_has_its_conversations() -> None:
    kinds = [texts.code_edits(), texts.quotes(), texts.chat(), texts.second_turns(["x"] * 6)]
    assert [len(one) for one in kinds] == [6, 6, 6, 6]
    assert all(one[-1]["role"] == "user" for kind in kinds for one in kind)
    assert "def rgb_to_hls" in kinds[0][0][0]["content"] and kinds[3][0][1]["content"] == "x"


@pytest.mark.parametrize(
    "p, q",
    [
        ([0.5, 0.25, 0.25], [0.5, 0.25, 0.25]),
        ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]),
        ([1.0, 0.0, 0.0], [0.0, 0.4, 0.6]),
        ([0.1, 0.0, 0.9], [0.3, 0.3, 0.4]),
    ],
)
def test_rules_of_acceptance_are_what_draws_show(p: list[float], q: list[float]) -> None:
    model, drafter = np.array(p), np.array(q)
    found = agreements(model, drafter)
    rng = np.random.default_rng(0)
    u, noise = rng.random(40_000), rng.gumbel(size=(40_000, 3))
    drawn, guessed = (np.searchsorted(np.cumsum(one), u, side="right") for one in (model, drafter))
    with np.errstate(divide="ignore"):
        races = [(np.log(one) + noise).argmax(axis=1) for one in (model, drafter)]
    assert found["greedy"] == p[int(np.argmax(q))]
    assert found["same number"] == pytest.approx((drawn == guessed).mean(), abs=0.02)
    assert found["race"] == pytest.approx((races[0] == races[1]).mean(), abs=0.02)
    assert found["rejection"] == pytest.approx(np.minimum(model, drafter).sum())
    assert max(found["same number"], found["race"]) <= found["rejection"] + 1e-9


def test_a_drafter_lacks_layers_of_the_middle(tmp_path: Path) -> None:
    tensors = {f"model.layers.{i}.x": np.full(2, i, np.float32) for i in range(6)}
    save_file(tensors | {"lm_head.weight": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(TINY | {"num_hidden_layers": 6}))
    made = without_layers(tmp_path, tmp_path / "less", 2)
    assert json.loads((made / "config.json").read_text())["num_hidden_layers"] == 4
    kept = load_file(made / "model.safetensors")
    assert [int(kept[f"model.layers.{i}.x"][0]) for i in range(4)] == [0, 1, 4, 5]
    assert len(kept) == 5


def test_distributions_stand_beside_each_other(tmp_path: Path) -> None:
    """A forced answer is the drawn one, and the same model has the same logits for it."""
    llm = tiny(tmp_path, dtype="float32")
    drawn, said = distributions(llm, PROMPTS[0], 1.0, 5)
    forced_logits, again = distributions(llm, PROMPTS[0], 1.0, 5, said)
    assert again == said and len(drawn) == 5
    for one, other in zip(drawn, forced_logits, strict=True):
        assert np.array_equal(one, other)
        assert agreements(softmax(one, 1.0), softmax(other, 1.0))["same number"] == pytest.approx(1)


def test_rows_of_the_comparison_are_medians_of_requests() -> None:
    speeds = {
        "ours": [10.0, 20.0, 30.0],
        "ours" + WITH: [20.0, 60.0, 60.0],
        "vllm": [5.0, 10.0, 10.0],
        "vllm" + WITH: [10.0, 10.0, 20.0],
    }
    assert rows(speeds) == {
        "ours": {"decode_tokens_per_s": 20.0},
        "ours" + WITH: {"decode_tokens_per_s": 60.0, "guesses_speed_ratio": 2.0},
        "vllm": {"decode_tokens_per_s": 10.0},
        "vllm" + WITH: {
            "decode_tokens_per_s": 10.0, "guesses_speed_ratio": 2.0, "ours_over_this": 3.0,
        },
    }  # fmt: skip
