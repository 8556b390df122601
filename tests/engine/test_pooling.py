"""From hidden states, chunk by chunk, to what a pooling request gets; by NumPy, without a model."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine import InvalidRequestError, PoolingParams, RequestOutputKind, SamplingParams
from jax_engine.engine.pooling.pooling import (
    PooledParams,
    PooledPrompt,
    PooledResults,
    as_sampling_params,
)
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.models.model_config import HeadConfig, HeadLayers, PoolingRecipe, Ranking
from jax_engine.models.pooling_heads import PoolingHead
from jax_engine.outputs import RequestMetrics
from jax_engine.step import HiddenStates, StepResult

WIDTH = 4
RECIPE = PoolingRecipe()
STATES = np.random.default_rng(0).standard_normal((5, WIDTH)).astype(np.float32)
IDS = [9, 7, 8, 9, 7]


def head_for(task: Any, labels: int = 3) -> PoolingHead:
    rng = np.random.default_rng(1)
    names = tuple(str(i) for i in range(labels))
    weight = rng.standard_normal((labels, WIDTH)).astype(np.float32)
    return PoolingHead(HeadConfig(task, names), weight, np.ones(labels, np.float32))


def ranker() -> PoolingHead:
    """Vectors of 3 numbers, of tokens 9 and then of token 8."""
    rng = np.random.default_rng(2)
    config = HeadConfig("token_embed", (), ranking=Ranking(3, ("nine", "eight"), (9, 8)))
    weight = rng.standard_normal((3, WIDTH)).astype(np.float32)
    return PoolingHead(config, weight, np.zeros(3, np.float32), reads=(9, 8))


def model(trained: Any = (), recipe: PoolingRecipe = RECIPE) -> Any:
    spec = SimpleNamespace(is_encoder=False)
    sizes = {"matryoshka_dimensions": trained, "hidden_size": WIDTH}
    return SimpleNamespace(**sizes, pooling=recipe, spec=spec)


def pooled(
    given: PoolingParams,
    chunks: list[int],
    head: PoolingHead | None = None,
    recipe: PoolingRecipe = RECIPE,
) -> np.ndarray:
    """What comes of a prompt in these chunks; in the step before and behind it is another's."""
    params = as_sampling_params(given, model(recipe=recipe), head)
    assert isinstance(params, PooledParams)
    prompt, start = PooledPrompt(params, IDS), 0
    for size in chunks:
        own = STATES[start : start + size]
        other = np.full((2, WIDTH), 99.0, np.float32)
        rows = np.stack([other.sum(0), own.sum(0)])
        ends = (np.stack([other[at], own[at]]) for at in (0, -1))
        states = HiddenStates(rows, *ends, np.concatenate([other, own]))
        item: Any = SimpleNamespace(start=start, num_tokens=size)
        prompt.add(item, states, 1, 2)
        start += size
    return prompt.data()


def raw(**params: Any) -> PoolingParams:
    return PoolingParams(**({"normalize": False} | params))


@pytest.mark.parametrize("chunks", [[5], [2, 3], [1, 1, 3]])
def test_the_chunks_do_not_matter(chunks: list[int]) -> None:
    np.testing.assert_allclose(pooled(raw(), chunks), STATES[-1])
    mean = STATES.astype(np.float64).mean(0)
    np.testing.assert_allclose(pooled(raw(pooling_type="MEAN"), chunks), mean, rtol=1e-5)
    np.testing.assert_array_equal(pooled(raw(task="token_embed"), chunks), STATES)


WAYS: dict[Any, np.ndarray] = {
    "LAST": STATES[-1],
    "CLS": STATES[0],
    "MEAN": STATES.mean(0),
    "MAX": STATES.max(0),
    "MEAN_SQRT_LEN": STATES.sum(0) / np.sqrt(5),
    "WEIGHTEDMEAN": sum((i + 1) * state for i, state in enumerate(STATES)) / 15,
}


@pytest.mark.parametrize("chunks", [[5], [2, 3], [1, 1, 3]])
@pytest.mark.parametrize("way", WAYS)
def test_the_ways_of_the_request_and_of_the_model(way: Any, chunks: list[int]) -> None:
    """The request's own word comes before the model's; scores are not made so."""
    made = pooled(raw(pooling_type=way.lower()), chunks, None, PoolingRecipe("MEAN"))
    np.testing.assert_allclose(made, WAYS[way], rtol=1e-5)
    recipe = PoolingRecipe(way, normalize=False)
    np.testing.assert_allclose(pooled(PoolingParams(), chunks, None, recipe), WAYS[way], rtol=1e-5)
    scaled = pooled(PoolingParams(), chunks, None, PoolingRecipe(way))
    np.testing.assert_allclose(scaled, WAYS[way] / np.linalg.norm(WAYS[way]), rtol=1e-5)
    scaled = pooled(PoolingParams(normalize=True), chunks, None, recipe)
    np.testing.assert_allclose(scaled, WAYS[way] / np.linalg.norm(WAYS[way]), rtol=1e-5)
    head = head_for("classify")
    scores = pooled(PoolingParams(use_activation=False), chunks, head, recipe)
    np.testing.assert_allclose(scores, STATES[-1] @ head.weight.T + 1, rtol=1e-5)
    each = pooled(PoolingParams(task="token_embed"), chunks, None, recipe)
    lengths = np.linalg.norm(STATES, axis=1, keepdims=True)
    np.testing.assert_allclose(each, STATES / lengths, rtol=1e-5)


@pytest.mark.parametrize("task", [None, "embed", "token_embed"])
def test_what_the_engine_cannot_make_is_refused(task: Any) -> None:
    recipe = PoolingRecipe(refused="modules.json has Dense")
    with pytest.raises(InvalidRequestError, match=r"got one where modules\.json has Dense: name a"):
        as_sampling_params(PoolingParams(task=task), model(recipe=recipe), None)
    assert pooled(raw(pooling_type="MEAN"), [5], None, recipe) == pytest.approx(WAYS["MEAN"])
    as_sampling_params(SamplingParams(), model(recipe=recipe), None)
    as_sampling_params(PoolingParams(), model(recipe=recipe), head_for("classify"))


def test_vectors_are_cut_before_they_are_scaled_to_length_1() -> None:
    each = pooled(PoolingParams(task="token_embed", dimensions=2), [5])
    lengths = np.sqrt((STATES[:, :2].astype(np.float64) ** 2).sum(1))
    np.testing.assert_allclose(each, STATES[:, :2] / lengths[:, None], rtol=1e-6)
    one = pooled(PoolingParams(dimensions=3), [5])
    np.testing.assert_allclose(one, STATES[-1, :3] / np.linalg.norm(STATES[-1, :3]), rtol=1e-6)


@pytest.mark.parametrize("labels", [1, 3])
def test_scores_of_a_head(labels: int) -> None:
    """They come as probabilities or raw; a single one goes through the sigmoid."""
    head = head_for("classify", labels)
    logits = STATES[-1] @ head.weight.T + 1
    np.testing.assert_allclose(
        pooled(PoolingParams(use_activation=False), [2, 3], head), logits, rtol=1e-5
    )
    shares = np.exp(logits) / np.exp(logits).sum() if labels > 1 else 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(pooled(PoolingParams(), [2, 3], head), shares, rtol=1e-5)
    tokens = head_for("token_classify", labels)
    # What a head is for is what its model does unasked, also token by token.
    each = pooled(PoolingParams(use_activation=False), [2, 3], tokens)
    np.testing.assert_allclose(each, STATES @ tokens.weight.T + 1, rtol=1e-4)


def test_a_head_reads_the_state_that_it_was_made_for_unless_another_is_named() -> None:
    made = head_for("classify")
    layers = HeadLayers(pooling="CLS")
    head = PoolingHead(replace(made.config, layers=layers), made.weight, made.bias)
    for given, state in ((None, STATES[0]), ("MEAN", STATES.mean(0)), ("LAST", STATES[-1])):
        params = PoolingParams(use_activation=False, pooling_type=given)
        expected = state @ made.weight.T + 1
        np.testing.assert_allclose(pooled(params, [2, 3], head), expected, rtol=1e-5)


def test_a_state_of_zeros_stays_one_if_it_is_scaled() -> None:
    zeros = as_sampling_params(PoolingParams(normalize=True), model(), None)
    prompt = PooledPrompt(zeros, [9])  # type: ignore[arg-type]
    nothing = np.zeros((1, WIDTH), np.float32)
    item: Any = SimpleNamespace(start=0, num_tokens=1)
    prompt.add(item, HiddenStates(nothing, nothing, nothing, None), 0, 0)
    assert prompt.data().tolist() == [0.0] * WIDTH


def test_a_model_with_a_head_gives_embeddings_too() -> None:
    found = pooled(raw(task="embed"), [5], head_for("classify"))
    np.testing.assert_allclose(found, STATES[-1])


@pytest.mark.parametrize("chunks", [[5], [2, 3], [1, 1, 3], [1, 2, 1, 1]])
def test_a_ranking_head_reads_the_states_of_its_tokens(chunks: list[int]) -> None:
    """In the order of the head, as they are unless it is asked otherwise, whatever the recipe."""
    head, recipe = ranker(), PoolingRecipe("MEAN", refused="modules.json has Dense")
    expected = STATES[[0, 3, 2]] @ head.weight.T
    for given in (PoolingParams(), PoolingParams(task="token_embed", use_activation=False)):
        np.testing.assert_allclose(pooled(given, chunks, head, recipe), expected, rtol=1e-5)
    scaled = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    found = pooled(PoolingParams(normalize=True), chunks, head, recipe)
    np.testing.assert_allclose(found, scaled, rtol=1e-5)


@pytest.mark.parametrize("task", ["embed", "classify", "token_classify", "generate"])
def test_a_ranking_head_does_nothing_else(task: Any) -> None:
    params: Any = SamplingParams() if task == "generate" else PoolingParams(task=task)
    with pytest.raises(InvalidRequestError, match=f"^{task} needs another model.*ranks documents"):
        as_sampling_params(params, model(), ranker())


def test_what_was_computed_before_a_preemption_does_not_count() -> None:
    """The prompt begins anew: nothing of it was kept."""
    for params in (raw(pooling_type="MEAN"), raw(task="token_embed")):
        made = as_sampling_params(params, model(), None)
        prompt = PooledPrompt(made, IDS)  # type: ignore[arg-type]
        for size in (2, 5):
            first, last = STATES[:1], STATES[size - 1 : size]
            states = HiddenStates(STATES[:size].sum(0)[None], first, last, STATES)
            item: Any = SimpleNamespace(start=0, num_tokens=size)
            prompt.add(item, states, 0, 0)
        wanted = STATES if params.per_token else STATES.mean(0)
        np.testing.assert_allclose(prompt.data(), wanted, rtol=1e-5)


def test_nothing_was_computed() -> None:
    assert pooled(PoolingParams(), []).shape == pooled(raw(task="token_embed"), []).shape == (0,)


def test_a_pooling_request_is_one_of_a_single_token_that_is_dropped() -> None:
    params = as_sampling_params(PoolingParams(), model(), None)
    assert isinstance(params, PooledParams)
    assert (params.pooling.task, params.max_tokens, params.greedy) == ("embed", 1, True)
    assert not params.detokenize and params.output_kind is RequestOutputKind.FINAL_ONLY
    assert params.drops_output and not SamplingParams().drops_output
    params = as_sampling_params(PoolingParams(), model(), head_for("token_classify"))
    assert isinstance(params, PooledParams) and params.pooling.task == "token_classify"
    given = SamplingParams()
    assert as_sampling_params(given, model(), None) is given


@pytest.mark.parametrize(
    ("task", "head", "words"),
    [
        ("classify", None, "classify needs a model with a classification head.*language model"),
        ("classify", "token_classify", "got one with a head for token_classify$"),
        ("token_classify", "classify", "got one with a head for classify$"),
        ("generate", "classify", "generate needs a model that generates text, got .* 3 scores"),
    ],
)  # fmt: skip
def test_what_a_model_cannot_do(task: Any, head: Any, words: str) -> None:
    params: Any = SamplingParams() if task == "generate" else PoolingParams(task=task)
    with pytest.raises(InvalidRequestError, match=words):
        as_sampling_params(params, model(), None if head is None else head_for(head))


@pytest.mark.parametrize(
    ("trained", "good", "bad", "words"),
    [
        (None, None, 2, "dimensions must be None, got 2: the model was not trained"),
        ((2, 4), 2, 3, "dimensions must be one of 2, 4, got 3, which it was trained for"),
        ((), WIDTH, WIDTH + 1, "dimensions must be at most 4, got 5, the model's width"),
    ],
)
def test_dimensions(trained: Any, good: int | None, bad: int, words: str) -> None:
    as_sampling_params(PoolingParams(dimensions=good), model(trained), None)
    with pytest.raises(InvalidRequestError, match=words):
        as_sampling_params(PoolingParams(dimensions=bad), model(trained), None)


def test_what_the_client_of_a_pooling_request_gets() -> None:
    """One output, of the prompt's states alone; the token that ends it is dropped."""
    params = as_sampling_params(raw(pooling_type="MEAN"), model(), None)
    assert isinstance(params, PooledParams)
    end = SimpleNamespace(finish_reason="abort")
    group: Any = SimpleNamespace(request_id="a", seqs=[end])
    results = PooledResults(Prompt("x", [1, 0, 1]), params, group)
    metrics, item = RequestMetrics(0.0), SimpleNamespace(start=0, num_tokens=3)
    output = results.core_output(metrics, finished=True)
    assert not output.finished and output.outputs.data.shape == (0,)
    rows = np.array([[9.0, 9.0], [3.0, 6.0]], np.float32)
    results.take_prompt(item, 1, 2, StepResult([]))  # type: ignore[arg-type]
    results.take_prompt(item, 1, 2, StepResult([], hidden=HiddenStates(rows, rows, rows, None)))  # type: ignore[arg-type]
    assert results.take_token(end, 0, StepResult([7])) is None  # type: ignore[arg-type]
    end.finish_reason = "length"
    output = results.core_output(metrics, finished=True)
    assert (output.request_id, output.prompt_token_ids, output.finished) == ("a", [1, 0, 1], True)
    assert output.outputs.data.tolist() == [1.0, 2.0]
    assert not results.streams and not results.every_token and results.num_generated == 0
    assert params.wants_prompt
