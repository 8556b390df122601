"""Guided decoding through the engine: a tiny random model over bytes, which obeys nothing else."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from jax_engine import LLM, InvalidRequestError, SamplingParams, StructuredOutputsParams
from tests.support.byte_tokenizer import VOCAB
from tests.support.in_process import check_idle
from tests.support.json_schemas import conforms, schemas
from tests.support.tiny_llama import byte_llama

EOS = 256
MAX_LEN = 240
REGEX = "(ab|c[0-9]{2}){1,5}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    # Logits for more tokens than the tokenizer has, as in many models
    sizes = {"vocab_size": VOCAB + 30, "max_position_embeddings": MAX_LEN}
    path = byte_llama(tmp_path_factory.mktemp("models") / "bytes", **sizes)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"eos_token_id": EOS}))
    return str(path)


@pytest.fixture(scope="module")
def llm(folder):
    return LLM(folder, block_size=4, num_gpu_blocks_override=400, max_num_seqs=8)


@pytest.fixture(scope="module")
def crowded(folder):
    """A pool for little more than one request of 100 tokens: groups are preempted."""
    sizes = {"num_gpu_blocks_override": 45, "max_model_len": 100, "max_num_seqs": 8}
    return LLM(folder, block_size=4, **sizes)


def guided(seed: int = 0, **kind) -> SamplingParams:
    guide = StructuredOutputsParams(**kind)
    return SamplingParams(
        structured_outputs=guide, temperature=0.8, seed=seed, max_tokens=MAX_LEN - 20
    )


def completions(llm, prompts, params) -> list:
    return [
        one for output in llm.generate(prompts, params, use_tqdm=False) for one in output.outputs
    ]


@given(schema=schemas, seed=st.integers(0, 10_000), n=st.sampled_from([1, 1, 3]))
def test_every_output_that_ends_conforms_to_its_schema(llm, schema, seed, n) -> None:
    params = replace(guided(seed, json=schema), n=n)
    for one in completions(llm, "json:", params):
        event(one.finish_reason)
        if one.finish_reason == "stop":
            assert one.token_ids[-1] == EOS
            assert conforms(json.loads(one.text), schema)
        else:
            assert one.finish_reason == "length"
            assert len(one.token_ids) == params.max_tokens


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), choice=st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_regexes_and_choices_in_one_batch_with_free_requests(llm, seed, choice) -> None:
    free = SamplingParams(temperature=1.0, seed=seed, max_tokens=12, ignore_eos=True)
    batch = [guided(seed, regex=REGEX), free, guided(seed, choice=choice), guided(seed, regex="x")]
    matched, alone, chosen, x = completions(llm, ["a", "b", "c", "d"], batch)
    assert re.fullmatch(REGEX, matched.text) and chosen.text in choice
    assert {one.finish_reason for one in (matched, chosen, x)} == {"stop"}
    assert x.token_ids == [ord("x"), EOS]
    assert alone.token_ids == completions(llm, "b", free)[0].token_ids


@pytest.mark.slow
@pytest.mark.parametrize("way", ["alone", "crowded", "not ahead"])
def test_a_guided_request_gets_the_same_tokens_whatever_happens_to_it(llm, crowded, way) -> None:
    """I31, I36: alone and in company, preempted and not."""
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 5, "maxItems": 9}
    batch = [replace(guided(seed, json=schema), n=2, max_tokens=60) for seed in range(4)]
    prompts = [f"prompt {i} of some length" for i in range(4)]
    wanted = [one.token_ids for one in completions(llm, prompts, batch)]
    if way == "alone":
        found = [completions(llm, prompts[i], batch[i]) for i in range(4)]
        assert [one.token_ids for two in found for one in two] == wanted
        return
    engine = crowded.llm_engine
    engine._pipeline.look_ahead = way != "not ahead"
    before = engine.stats()
    assert [one.token_ids for one in completions(crowded, prompts, batch)] == wanted
    after = engine.stats()
    assert after.num_swapped_out + after.num_recomputed > (
        before.num_swapped_out + before.num_recomputed
    )


@pytest.mark.slow
def test_beams_follow_the_grammar(llm) -> None:
    params = SamplingParams(
        use_beam_search=True, n=4, temperature=0.0, max_tokens=40,
        structured_outputs=StructuredOutputsParams(regex="(a|bb){1,4}c"),
    )  # fmt: skip
    found = completions(llm, "beams", params)
    assert len(found) == 4
    for one in found:
        assert one.finish_reason == "stop" and re.fullmatch("(a|bb){1,4}c", one.text)
    assert len({one.text for one in found}) == 4
    with_free = SamplingParams(use_beam_search=True, n=2, temperature=0.0, max_tokens=5)
    both = llm.generate(["beams", "free"], [params, with_free], use_tqdm=False)
    assert [one.text for one in both[0].outputs] == [one.text for one in found]


def test_an_output_that_is_cut_ends_by_length(llm) -> None:
    (one,) = completions(llm, "x", replace(guided(regex="a{50}"), max_tokens=7))
    assert (one.text, one.finish_reason) == ("a" * 7, "length")


def test_a_guide_and_other_limits_hold_together(llm, caplog) -> None:
    no_b = replace(guided(regex="(a|b){6}"), bad_words=["b"])
    assert completions(llm, "x", no_b)[0].text == "aaaaaa"
    for seed in range(5):
        no_ab = replace(guided(seed, regex="(a|b){6}"), bad_words=["ab"])
        text = completions(llm, "x", no_ab)[0].text
        assert re.fullmatch("b*a*", text) and len(text) == 6
    only = [ord("a"), EOS]
    assert completions(llm, "x", replace(guided(regex="[a-z]{3}"), allowed_token_ids=only))[0].text
    # What the grammar wants next is forbidden: there is nothing left to draw.
    stuck, fine = completions(
        llm, ["x", "y"], [replace(guided(regex="ab"), bad_words=["b"]), guided(regex="ab")]
    )
    assert (stuck.text, stuck.finish_reason) == ("a", "abort")
    assert stuck.stop_reason == "its constraints allow no token"
    assert (fine.text, fine.finish_reason) == ("ab", "stop")


def test_streams_and_aborts_leave_nothing_behind(llm) -> None:
    engine = llm.llm_engine
    engine.add_request("a", "x", replace(guided(regex="[ab]{100}"), n=3))
    engine.add_request("b", "y", guided(regex="[ab]{4}"))
    texts = []
    while "b" in engine._running.requests:
        texts += [o.outputs[0].text for o in engine.step() if o.request_id == "b"]
    assert texts[:4] == [texts[-1][:i] for i in range(1, 5)]
    engine.abort_request("a")
    check_idle(engine)
    assert engine.stats().guided_seconds > 0


def test_bad_grammars_are_refused_before_anything_starts(llm, folder) -> None:
    with pytest.raises(InvalidRequestError, match=r"prompts\[1\].*regex"):
        completions(llm, ["a", "b"], [guided(regex="a"), guided(regex="((")])
    assert not llm.llm_engine.has_unfinished_requests()
    silent = LLM(folder, skip_tokenizer_init=True, num_gpu_blocks_override=100)
    with pytest.raises(InvalidRequestError, match="no tokenizer"):
        silent.generate([[1]], guided(regex="a"), use_tqdm=False)
