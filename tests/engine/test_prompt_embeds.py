"""Prompts that are given as embeddings: who takes them, in which form, and what is refused."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine import (
    LLM,
    BeamSearchParams,
    ConfigError,
    InvalidRequestError,
    RequestTooLargeError,
    SamplingParams,
)
from jax_engine.engine.request_router import RequestRouter
from jax_engine.engine.requests.prompt_embeds import EmbedsForm, embeds_of
from reference.transformer import Transformer
from tests.support.some_embeds import WIDTH, some_embeds
from tests.support.tiny_encoders import tiny_encoder

LIMIT = 32
IDS = [3, 9, 4, 9, 17, 5, 28, 11, 6, 30, 8]
GREEDY = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True, logprobs=0)
FORM = EmbedsForm(WIDTH, "float32")


class Tensor:
    """What is asked of PyTorch's: NumPy gets no bfloat16 of them, and nothing with gradients."""

    def __init__(self, values: np.ndarray, own: str = "bfloat16", *, grad: bool = True) -> None:
        self.values, self.own, self.grad = values, own, grad

    def detach(self) -> "Tensor":
        return Tensor(self.values, self.own, grad=False)

    def cpu(self) -> "Tensor":
        return self

    def is_floating_point(self) -> bool:
        return self.own != "int64"

    def float(self) -> "Tensor":
        return Tensor(self.values.astype(np.float32), "float32", grad=self.grad)

    def numpy(self) -> np.ndarray:
        if self.grad or self.own == "bfloat16":
            raise TypeError("NumPy has no such array")
        return self.values


@pytest.fixture(scope="module")
def llm(tiny: str) -> LLM:
    return LLM(
        tiny, skip_tokenizer_init=True, block_size=4, max_model_len=LIMIT, max_num_seqs=2,
        num_gpu_blocks_override=30, max_num_batched_tokens=8, enable_prompt_embeds=True,
    )  # fmt: skip


def table(checkpoint: tuple[Path, Transformer]) -> np.ndarray:
    found: np.ndarray = checkpoint[1].weights["model.embed_tokens.weight"]
    return found


def of(llm: LLM, *prompts: Any, params: SamplingParams = GREEDY) -> list[Any]:
    """What is said to each prompt, to the last bit."""
    found = llm.generate(list(prompts), params, use_tqdm=False)
    return [
        [(one.token_ids, one.logprobs, one.cumulative_logprob) for one in each.outputs]
        for each in found
    ]


def test_any_array_of_the_same_numbers_says_the_same(llm: LLM, checkpoint: Any) -> None:
    """In one list with token ids, and alone."""
    vectors = table(checkpoint)[IDS]
    wanted, *others = of(
        llm,
        {"prompt_token_ids": IDS},
        {"prompt_embeds": vectors},
        IDS,
        {"prompt_embeds": vectors[None], "prompt": "its text", "cache_salt": "a"},
        {"prompt_embeds": jnp.asarray(vectors)},
        {"prompt_embeds": vectors.astype(np.float64)},
        {"prompt_embeds": Tensor(vectors, "float32")},
    )
    assert others == [wanted] * len(others)
    assert of(llm, {"prompt_embeds": vectors}) == [wanted]


def test_numbers_of_fewer_bits_become_the_engine_s(llm: LLM) -> None:
    short = some_embeds(1, 7).astype(jnp.bfloat16)
    whole = short.astype(np.float32)
    first, *others = of(llm, *({"prompt_embeds": one} for one in (whole, short, Tensor(short))))
    assert others == [first, first]


def test_what_an_output_says_of_its_prompt(llm: LLM) -> None:
    """As vLLM: a zero for each position; the text is what the caller says it is."""
    (output,) = llm.generate({"prompt_embeds": some_embeds(1, 6), "prompt": "x"}, use_tqdm=False)
    assert output.prompt_token_ids == [0] * 6 and output.prompt == "x"


def test_equal_embeddings_share_blocks_and_others_do_not(llm: LLM) -> None:
    llm.reset_prefix_cache()
    same = {"prompt_embeds": some_embeds(3, 14)}
    for prompt, cached in [
        (same, 0),
        (same, 12),
        ({"prompt_embeds": some_embeds(4, 14)}, 8),  # the first 9 are common
        (same | {"cache_salt": "a"}, 0),
        ([0] * 14, 0),
        ([0] * 14, 12),
    ]:
        (output,) = llm.generate(prompt, GREEDY, use_tqdm=False)
        assert output.num_cached_tokens == cached


def test_the_prompt_s_positions_count_as_no_token(llm: LLM, checkpoint: Any) -> None:
    """Penalties are of tokens: those of this prompt are not known."""
    plain = SamplingParams(temperature=0.0, max_tokens=1, logprobs=0)
    penalised = SamplingParams(temperature=0.0, max_tokens=1, logprobs=0, repetition_penalty=9.0)
    prompt = {"prompt_embeds": some_embeds(1, 7)}
    assert of(llm, prompt, params=penalised) == of(llm, prompt, params=plain)
    seen: list[list[int]] = []

    def processor(prompt: list[int], output: list[int], logits: np.ndarray) -> np.ndarray:
        seen.append(prompt)
        return logits

    of(llm, prompt, params=SamplingParams(max_tokens=1, logits_processors=[processor]))
    assert seen[0] == []


def test_steps_without_embeddings_run_the_usual_programs(llm: LLM) -> None:
    of(llm, IDS, {"prompt_embeds": some_embeds(1, 7)})
    steps = llm.llm_engine.worker.steps
    kinds = {(one.decode_only, one.embeds) for one in steps.compiled_shapes()}
    assert {(True, False), (False, False), (False, True)} <= kinds and (True, True) not in kinds


def test_the_beginning_may_be_cut(llm: LLM) -> None:
    vectors, params = some_embeds(1, 9), SamplingParams(temperature=0.0, max_tokens=3)
    cut = SamplingParams(temperature=0.0, max_tokens=3, truncate_prompt_tokens=5)
    assert of(llm, {"prompt_embeds": vectors}, params=cut) == of(
        llm, {"prompt_embeds": vectors[-5:]}, params=params
    )


NAN = some_embeds(1, 5)
NAN[3, 2] = np.nan
WRONG = [
    ({"prompt_embeds": some_embeds(1, 5)[:, :-1]}, r"hidden_size \(20\).*got 19"),
    ({"prompt_embeds": some_embeds(1, 5)[0]}, r"\(num_tokens, hidden_size\), got the shape \(20,"),
    ({"prompt_embeds": np.zeros((2, 3, WIDTH))}, r"got the shape \(2, 3, 20\)"),
    ({"prompt_embeds": np.zeros((0, WIDTH))}, "at least 1 token, got none"),
    ({"prompt_embeds": NAN}, "finite in the engine's dtype .float32.*for token 3"),
    ({"prompt_embeds": np.full((2, WIDTH), 1e300)}, "infinity for token 0"),
    ({"prompt_embeds": np.zeros((2, WIDTH), int)}, "floating-point dtype, got int64"),
    ({"prompt_embeds": Tensor(np.zeros((2, WIDTH), int), "int64")}, "floating-point"),
    ({"prompt_embeds": np.zeros((2, WIDTH), complex)}, "floating-point"),
    ({"prompt_embeds": [[0.0] * WIDTH]}, "must be an array of NumPy, JAX or PyTorch, got list"),
    ({"prompt_embeds": "AAAA"}, "got str"),
    ({"prompt_embeds": NAN[:2], "prompt_token_ids": [3]}, r"prompt_token_ids must be left out"),
    ({"prompt_embeds": NAN[:2], "prediction": [3]}, "prediction must be left out"),
    ({"prompt_embeds": NAN[:2], "token_type_ids": [0, 0]}, "token_type_ids must be None"),
    ({"prompt_embeds": NAN[:2], "prompt": 5}, "prompt must be a string, got int"),
    ({"prompt_embeds": NAN[:2], "prompt_is_token_ids": [True]}, "got the keys"),
]


@pytest.mark.parametrize(("prompt", "message"), WRONG)
def test_wrong_embeddings_are_refused(llm: LLM, prompt: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        llm.generate(prompt, use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()


def test_too_many_are_refused_as_tokens_are(llm: LLM) -> None:
    with pytest.raises(RequestTooLargeError, match="has 32 tokens, max_model_len 32 allows 31"):
        llm.generate({"prompt_embeds": some_embeds(1, LIMIT)}, use_tqdm=False)


def test_log_probabilities_of_such_a_prompt_are_refused(llm: LLM) -> None:
    params = SamplingParams(prompt_logprobs=1)
    with pytest.raises(InvalidRequestError, match=r"prompt_logprobs must be None with prompt_emb"):
        llm.generate({"prompt_embeds": some_embeds(1, 3)}, params, use_tqdm=False)


def test_beams_are_asked_for_by_generate(llm: LLM) -> None:
    """The outputs of `beam_search` begin with the prompt's tokens."""
    prompts = [[3, 4], {"prompt_embeds": some_embeds(1, 3)}]
    with pytest.raises(InvalidRequestError, match="prompt_embeds must be left out in beam_search"):
        llm.beam_search(prompts, BeamSearchParams(beam_width=2, max_tokens=2))


@pytest.mark.slow
def test_they_are_pooled_as_tokens_are(llm: LLM, checkpoint: Any) -> None:
    found, wanted = llm.embed([{"prompt_embeds": table(checkpoint)[IDS]}, IDS], use_tqdm=False)
    assert found.outputs.embedding == wanted.outputs.embedding


def test_an_engine_that_was_not_asked_takes_none() -> None:
    with pytest.raises(InvalidRequestError, match=r"prompt_embeds .* \(--enable-prompt-embeds\)"):
        embeds_of(some_embeds(1, 3), None)


def test_the_engine_s_own_array_is_not_the_caller_s() -> None:
    given = some_embeds(1, 3)
    own = embeds_of(given, FORM)
    given[:] = 0
    assert (own != 0).any() and (FORM.read(own.tobytes()) == own).all()
    half = EmbedsForm(WIDTH, "bfloat16")
    short = embeds_of(own, half)
    assert short.dtype == jnp.bfloat16 and (half.read(short.tobytes()) == short).all()


def test_an_encoder_has_no_place_for_them(tmp_path: Path) -> None:
    path, *_ = tiny_encoder(tmp_path)
    with pytest.raises(ConfigError, match="enable_prompt_embeds must be left out for an encoder"):
        LLM(str(path), enable_prompt_embeds=True, skip_tokenizer_init=True)


def test_a_router_tells_prompts_of_zeros_apart() -> None:
    """The engine that has an equal prompt gets the next one; what is not equal goes elsewhere."""
    router = RequestRouter(2, block_size=4, num_blocks=30)
    zeros = [0] * 12
    assert [router.choose(name, zeros, (None, None, name[0])) for name in ("a", "b")] == [0, 1]
    assert [router.choose(name, zeros, (None, None, name[0])) for name in ("b2", "a2")] == [1, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"distributed_executor_backend": "mp"},
        {"pipeline_parallel_size": 2},
        {"tensor_parallel_size": 2},
        {"data_parallel_size": 2},
    ],
    ids=str,
)
def test_other_processes_get_them(tiny: str, llm: LLM, settings: dict[str, Any]) -> None:
    """A process of the model, its stages, its devices, several engines."""
    there = LLM(
        tiny, skip_tokenizer_init=True, block_size=4, max_model_len=LIMIT, max_num_seqs=2,
        num_gpu_blocks_override=30, enable_prompt_embeds=True, **settings,
    )  # fmt: skip
    prompts = [{"prompt_embeds": some_embeds(i, 5 + i)} for i in range(4)]
    found, wanted = of(there, *prompts, IDS), of(llm, *prompts, IDS)
    tokens = [[[one[0] for one in each] for each in side] for side in (found, wanted)]
    assert tokens[0] == tokens[1]
