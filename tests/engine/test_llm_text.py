"""The engine on text: a tiny model over bytes, so that characters and stop strings span tokens."""

from copy import deepcopy

import pytest

from jax_engine import LLM, BeamSearchParams, InvalidRequestError, RequestOutputKind, SamplingParams
from tests.support.byte_tokenizer import EOS_TOKEN


@pytest.fixture(scope="module")
def llm(of_bytes):
    return LLM(of_bytes, block_size=4, num_gpu_blocks_override=100, max_num_seqs=8)


def sampled(**changes) -> SamplingParams:
    settings = {"temperature": 2.0, "seed": 1, "max_tokens": 24, "ignore_eos": True}
    return SamplingParams(**(settings | changes))


@pytest.mark.slow
def test_an_end_at_max_tokens_is_an_end(llm) -> None:
    """vLLM does the same: what ended by itself was not cut short; its last token is no text."""
    ends = {
        256: ("", "stop", None),  # end of sequence
        65: ("", "stop", 65),  # a stop token
        66: ("B", "length", None),
    }
    for token, wanted in ends.items():
        for kind in RequestOutputKind:
            params = sampled(
                logit_bias={token: 100.0}, max_tokens=1, ignore_eos=False, stop_token_ids=[65],
                output_kind=kind,
            )  # fmt: skip
            llm.llm_engine.add_request("one", "x", params)
            (output,) = llm.llm_engine.step()  # `generate` asks for final outputs alone
            (one,) = output.outputs
            assert (one.text, one.finish_reason, one.stop_reason) == wanted
            assert one.token_ids == [token] and output.finished


@pytest.mark.slow
def test_without_detokenization_tokens_have_no_words(llm) -> None:
    """vLLM does the same, for the output and for the prompt."""
    params = sampled(logprobs=1, prompt_logprobs=1, max_tokens=2, detokenize=False)
    output = llm.generate("xyz", params, use_tqdm=False)[0]
    entries = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
    assert len(entries) >= 3
    assert {one.decoded_token for entry in entries for one in entry.values()} == {None}


def test_end_of_sequence_is_not_text(llm) -> None:
    bias = {256: 100.0}
    output = llm.generate("x", sampled(logit_bias=bias, ignore_eos=False), use_tqdm=False)[0]
    one = output.outputs[0]
    assert (one.text, one.token_ids, one.finish_reason) == ("", [256], "stop")
    shown = sampled(logit_bias=bias, max_tokens=2, skip_special_tokens=False)
    assert llm.generate("x", shown, use_tqdm=False)[0].outputs[0].text == EOS_TOKEN * 2
    silent = sampled(detokenize=False)
    assert llm.generate("x", silent, use_tqdm=False)[0].outputs[0].text == ""


def test_a_stop_token_s_text_is_left_out(llm) -> None:
    params = sampled(logit_bias={65: 100.0}, stop_token_ids=[65], min_tokens=0)
    one = llm.generate("x", params, use_tqdm=False)[0].outputs[0]
    assert (one.text, one.token_ids, one.stop_reason) == ("", [65], 65)


def test_logprobs_carry_the_text_of_their_tokens(llm) -> None:
    params = sampled(logprobs=1, logit_bias={65: 100.0}, max_tokens=1)
    entry = llm.generate("x", params, use_tqdm=False)[0].outputs[0].logprobs[0]
    assert entry[65].decoded_token == "A"


def test_the_progress_line_shows_the_speeds(llm, capsys) -> None:
    llm.generate(["a", "b"], sampled(max_tokens=3))
    shown = capsys.readouterr().err
    assert "Processed prompts: 100%" in shown
    assert "est. speed input:" in shown
    assert "output:" in shown and "toks/s" in shown


def test_text_that_is_no_unicode_is_refused(llm) -> None:
    with pytest.raises(InvalidRequestError, match="surrogate at character 1"):
        llm.generate("a\ud800", use_tqdm=False)


def test_empty_text_is_refused(llm) -> None:
    with pytest.raises(InvalidRequestError, match="at least 1 token"):
        llm.generate("", use_tqdm=False)
    with pytest.raises(InvalidRequestError, match=r"prompts\[1\].*none of the 3"):
        llm.generate(["a", "", "b"], use_tqdm=False)


def test_texts_of_beams_are_decoded_at_their_end(llm) -> None:
    params = BeamSearchParams(beam_width=3, max_tokens=7, ignore_eos=True)
    (output,) = llm.beam_search("Beams", params, use_tqdm=False)
    (request,) = llm.generate("Beams", params.sampling_params(), use_tqdm=False)
    decode = llm.get_tokenizer().decode
    for sequence, one in zip(output.sequences, request.outputs, strict=True):
        assert sequence.text == decode(sequence.tokens)
        assert one.text == decode(one.token_ids)
        entries = [entry for each in one.logprobs for entry in each.values()]
        words = [decode([token], skip_special_tokens=False) for token in one.token_ids]
        assert [entry.decoded_token for entry in entries] == words


def test_the_end_of_sequence_is_a_token_of_a_beam_and_not_text(llm) -> None:
    params = SamplingParams(
        use_beam_search=True, n=2, temperature=0.0, logit_bias={256: 100.0, 65: 99.0}, max_tokens=4
    )
    (output,) = llm.generate("x", params, use_tqdm=False)
    assert [(one.text, one.token_ids[-1]) for one in output.outputs] == [("", 256), ("A", 256)]


def test_what_was_given_out_does_not_change(llm) -> None:
    """Tokens, log-probabilities and times stay."""
    for kind in (RequestOutputKind.CUMULATIVE, RequestOutputKind.DELTA):
        engine = llm.llm_engine
        params = SamplingParams(
            n=2, temperature=1.0, seed=1, max_tokens=6, logprobs=1, output_kind=kind
        )
        engine.add_request("a", "xyz", params)
        given, copies = [], []
        while engine.has_unfinished_requests():
            outputs = engine.step()
            given += outputs
            copies += deepcopy(outputs)
            for output in outputs:
                for one in output.outputs:
                    one.text += "!"
        for one in copies:
            for completion in one.outputs:
                completion.text += "!"
        assert given == copies and len(given) > 1


def test_deltas_cannot_take_back_what_they_gave() -> None:
    with pytest.raises(InvalidRequestError, match=r"best_of must be n \(2\)"):
        SamplingParams(n=2, best_of=3, output_kind=RequestOutputKind.DELTA)
    SamplingParams(n=2, best_of=2, output_kind=RequestOutputKind.DELTA)
