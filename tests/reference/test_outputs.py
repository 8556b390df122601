"""Outputs by hand: kinds, ends, aborts, log-probabilities, the order of samples."""

from typing import Any

import numpy as np
import pytest

from reference.outputs import Logprob, Request, Sample, completion, end_of, outputs
from reference.parameters import parameters
from reference.text import Vocabulary

A, B, EURO, HALF, END = 0, 1, 2, 3, 4
WORDS = Vocabulary([b"a", b"b", "€".encode(), b"\xe2\x82", b"</s>"], frozenset({END}))
ROW = np.log([0.5, 0.2, 0.1, 0.15, 0.05])


def sample(token_ids: list[int], reason: str = "length", stop_reason: Any = None) -> Sample:
    return Sample(token_ids, [ROW] * len(token_ids), reason, stop_reason)


def request(*samples: Sample, vocabulary: Vocabulary | None = WORDS, **given: Any) -> Request:
    given = {"n": len(samples), "max_tokens": None} | given
    return Request(vocabulary, parameters(**given), [A, B, A], samples, [ROW, ROW])


def texts(one: Request, *counts: int, aborted: bool = False) -> list[str]:
    """Texts of a request's only sample, output by output."""
    steps = [{0: count} for count in counts]
    return [output.outputs[0].text for output in outputs(one, steps, aborted=aborted)]


def test_kinds() -> None:
    whole = sample([A, HALF, A])
    given = {kind: texts(request(whole, output_kind=kind), 1, 2, 3) for kind in KINDS}
    assert given == {
        "CUMULATIVE": ["a", "a", "a\ufffda"],
        "DELTA": ["a", "", "\ufffda"],
        "FINAL_ONLY": ["a\ufffda"],
    }


KINDS = ["CUMULATIVE", "DELTA", "FINAL_ONLY"]


def test_what_was_held_back_comes_at_the_end_and_at_an_abort() -> None:
    assert texts(request(sample([A, HALF])), 1, 2) == ["a", "a\ufffd"]
    one = request(sample([A, HALF, B, B]), output_kind="DELTA", stop=["\ufffdc"])
    assert texts(one, 1, 2, aborted=True) == ["a", "\ufffd"]
    assert texts(one, 1, 2, 3, 4) == ["a", "", "\ufffdb", "b"]
    one = request(sample([A, B, A]), stop="ba!")
    assert texts(one, 1, 2, 3) == ["a", "a", "aba"]
    assert texts(one, 1, 2, aborted=True) == ["a", "ab"]
    assert texts(request(sample([A, HALF]), stop="\ufffd"), 1, 2) == ["a", "a"]


def test_a_stop_string_counts_before_all_else() -> None:
    one = request(sample([A, B, END], "stop"), stop=["ab"])
    assert end_of(one, 0) == (2, "stop", "ab")
    assert texts(one, 1, 2) == ["", ""]
    included = request(sample([A, B, END], "stop"), stop=["ab"], include_stop_str_in_output=True)
    assert texts(included, 1, 2) == ["", "ab"]
    # The half character is one when the output ends: by then all its tokens are there.
    late = request(sample([A, HALF, END], "stop"), stop=["\ufffd"])
    assert end_of(late, 0) == (3, "stop", "\ufffd")
    assert texts(late, 2, 3) == ["a", "a"]


def test_of_a_search_there_is_one_output_with_the_log_probabilities_that_it_went_by() -> None:
    """Rule 6: hypotheses in order, whatever their sums; or the beams of an abort."""
    given = {"use_beam_search": True, "n": 2, "best_of": 3, "output_kind": "DELTA"}
    ends = [sample([B, B, END], "stop"), sample([A, A]), sample([A, EURO])]
    [output] = outputs(request(*ends, **given), [{0: 3, 1: 2, 2: 2}])
    assert [(one.index, one.text, one.finish_reason) for one in output.outputs] == [
        (0, "bb", "stop"), (1, "aa", "length"),
    ]  # fmt: skip
    assert output.finished and output.outputs[0].cumulative_logprob == ROW[[B, B, END]].sum()
    assert output.outputs[1].logprobs == [{A: Logprob(ROW[A], 1, "a")}] * 2
    [output] = outputs(request(*[sample([HALF], "abort")] * 2, **given), [{0: 1, 1: 1}])
    assert [(one.text, one.finish_reason) for one in output.outputs] == [("\ufffd", "abort")] * 2


def test_a_token_that_ends_an_output_is_no_text() -> None:
    ended = sample([A, B], "stop", B)
    assert texts(request(ended), 1, 2) == ["a", "a"]
    assert texts(request(ended, include_stop_str_in_output=True), 1, 2) == ["a", "ab"]
    assert end_of(request(ended), 0) == (2, "stop", B)
    assert end_of(request(ended, stop="b"), 0) == (2, "stop", B)
    both = request(ended, stop="b", include_stop_str_in_output=True)
    assert end_of(both, 0) == (2, "stop", "b")


def test_without_text() -> None:
    for one in (request(sample([A]), detokenize=False), request(sample([A]), vocabulary=None)):
        done = completion(one, 0, 1)
        assert (done.text, done.finish_reason) == ("", "length")
        assert done.logprobs is None and done.cumulative_logprob is None
    quiet = request(sample([A]), detokenize=False, logprobs=0)
    assert completion(quiet, 0, 1).logprobs == [{A: Logprob(ROW[A], 1, None)}]


def test_special_tokens_can_be_shown() -> None:
    assert texts(request(sample([A, END, B])), 3) == ["ab"]
    assert texts(request(sample([A, END, B]), skip_special_tokens=False), 3) == ["a</s>b"]


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ({"logprobs": 0}, [B]),
        ({"logprobs": 1}, [B, A]),
        ({"logprobs": 2}, [B, A]),
        ({"logprobs": 3}, [B, A, HALF]),
        ({"logprobs": -1}, [B, A, HALF, EURO, END]),
        ({"logprob_token_ids": [END, B]}, [B, END]),
    ],
)
def test_log_probabilities(given: dict[str, Any], tokens: list[int]) -> None:
    """The token's own comes first, then others'. The sum is that of the drawn tokens."""
    done = completion(request(sample([B, B]), **given), 0, 2)
    assert done.logprobs is not None and [list(entry) for entry in done.logprobs] == [tokens] * 2
    words = {A: "a", B: "b", EURO: "€", HALF: "\ufffd", END: "</s>"}
    ranks = {A: 1, B: 2, HALF: 3, EURO: 4, END: 5}
    for token, entry in done.logprobs[0].items():
        assert entry == Logprob(ROW[token], ranks[token], words[token])
    assert done.cumulative_logprob == pytest.approx(2 * np.log(0.2))


def test_a_prompt_s_log_probabilities_come_with_the_first_delta_only() -> None:
    one = request(sample([A, B]), prompt_logprobs=1, output_kind="DELTA")
    first, second = outputs(one, [{0: 1}, {0: 2}])
    assert first.prompt_logprobs is not None and second.prompt_logprobs is None
    nothing, of_b, of_a = first.prompt_logprobs
    assert nothing is None and of_b is not None and of_a is not None
    assert (list(of_b), list(of_a)) == ([B, A], [A])
    assert [one.prompt_logprobs for one in outputs(request(sample([A])), [{0: 1}])] == [None]


def test_samples_begin_and_end_when_they_do() -> None:
    """A delta holds what is new: no sample twice, none that waits, each end once."""
    one = request(sample([A]), sample([B, A]), sample([A]), output_kind="DELTA")
    steps = [{0: 1, 1: 1}, {0: 1, 1: 1, 2: 0}, {0: 1, 1: 2, 2: 0}]
    given = [[c.index for c in o.outputs] for o in outputs(one, steps, aborted=True)]
    assert given == [[0, 1], [], [1, 2]]
    last = outputs(one, steps, aborted=True)[-1]
    assert [c.finish_reason for c in last.outputs] == ["length", "abort"]
    assert [o.finished for o in outputs(one, steps, aborted=True)] == [False, False, True]


def test_an_abort_is_told_where_nothing_else_is_new() -> None:
    one = request(sample([A, B]), output_kind="DELTA")
    [_, last] = outputs(one, [{0: 1}, {0: 1}], aborted=True)
    assert [(c.text, c.token_ids, c.finish_reason) for c in last.outputs] == [("", [], "abort")]


def test_the_best_of_many_come_first_and_only_at_the_end() -> None:
    """The sum decides, not the mean: three tokens are less probable than one of them."""
    many = [sample([B]), sample([A, A, A]), sample([A]), sample([A])]
    one = request(*many, n=3, best_of=4)
    steps = [dict.fromkeys(range(4), 1), {0: 1, 1: 3, 2: 1, 3: 1}]
    first, last = outputs(one, steps)
    assert [c.index for c in first.outputs] == [0, 1, 2]
    assert [c.index for c in last.outputs] == [2, 3, 0]
    assert last.outputs[0].cumulative_logprob == pytest.approx(np.log(0.5))
    assert last.outputs[0].logprobs is None


def test_of_an_aborted_best_of_those_without_a_token_are_last() -> None:
    """Their sum is 0, which no sum of log-probabilities is above."""
    one = request(sample([A]), sample([A, A]), sample([B, A]), n=2, best_of=3)
    [output] = outputs(one, [{0: 0, 1: 1, 2: 1}], aborted=True)
    assert [c.index for c in output.outputs] == [1, 2]
