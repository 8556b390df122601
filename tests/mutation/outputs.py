"""Bugs in what clients are given: completions, deltas, log-probabilities."""

from tests.mutation.planting import Mutant, plant

SEQUENCE_TESTS = ("tests/engine/test_sequence_text.py",)
TEXT_TESTS = ("tests/engine/test_llm_text.py",)
VIEW_TESTS = ("tests/properties/test_client_view.py",)
LOGPROBS_TESTS = ("tests/engine/test_logprobs.py",)

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/engine/sequence_text.py",
        SEQUENCE_TESTS,
        (
            "self._num_tokens > self._min_tokens",
            "self._num_tokens >= self._min_tokens",
            "the last of min_tokens may complete a stop string",
        ),
        ("self._feed(self._detokenizer.flush())", "pass", "half a character at the end is lost"),
        (
            "self.text += self._stops.flush()",
            "pass",
            "text that a stop string might have begun with is lost at the end",
        ),
        (
            "StopChecker(stops, params.include_stop_str_in_output)",
            "StopChecker(stops)",
            "include_stop_str_in_output is ignored",
        ),
        (
            "skip_special_tokens=params.skip_special_tokens",
            "skip_special_tokens=True",
            "skip_special_tokens=False is ignored",
        ),
        ("self._num_tokens += len(token_ids)", "self._num_tokens = 1", "tokens are not counted"),
    ),
    *plant(
        "jax_engine/engine/request_state.py",
        TEXT_TESTS,
        (" or not self.params.detokenize:", ":", "words of tokens without detokenization"),
        (
            "        if self._is_text(seq):\n            output.text.add([token])",
            "        output.text.add([token])",
            "a stop token is text",
        ),
    ),
    *plant(
        "jax_engine/engine/request_state.py",
        VIEW_TESTS,
        (
            "-self._sequence_output(seq).cumulative_logprob",
            "-self._sequence_output(seq).cumulative_logprob / max(seq.output_len, 1)",
            "best_of by the mean",
        ),
        ("and finished and not beams", "and not beams", "best_of is sorted too early"),
        (
            "Logprob(logprob, rank, self._word(token))",
            "Logprob(logprob, rank + 1, self._word(token))",
            "the best token of a beam has rank 2",
        ),
        (
            "self.streams = self.deltas = self.every_token = False",
            "self.streams = self.deltas = False\n            self.every_token = True",
            "the text of a beam is that of all ways that were tried",
        ),
        ("seqs = seqs[: self.params.n]", "seqs = list(seqs)", "best_of returns all"),
        (
            "output.text.finish()  # what was held back",
            "pass  # what was held back",
            "an abort loses the text held back",
        ),
        (
            "if seq.finish_reason is not None:\n            output.text.finish()",
            "if False:\n            output.text.finish()",
            "the last token loses the text held back",
        ),
        (
            "return not ended_by_token or self.params.include_stop_str_in_output",
            "return not ended_by_token",
            "include_stop_str_in_output is for strings only",
        ),
        (
            "output.num_chars_given += len(delta.text)",
            "output.num_chars_given = len(delta.text)",
            "a delta repeats text",
        ),
        (
            "output.num_tokens_given += len(delta.token_ids)",
            "output.num_tokens_given = len(delta.token_ids)",
            "a delta repeats tokens",
        ),
        (
            "output.end_given = seq.finish_reason is not None",
            "output.end_given = False",
            "an end is told again with the next delta",
        ),
        (
            "self.prompt_given = self.deltas",
            "pass",
            "each delta has the prompt's log-probabilities",
        ),
        ("output.logprobs[first_token:]", "output.logprobs", "a delta repeats log-probabilities"),
        (
            "float(logprobs.logprobs[row])",
            "float(logprobs.logprobs[0])",
            "sums are of the first row's log-probabilities",
        ),
        (
            "token_ids[:-1] if ended_by_token else token_ids",
            "token_ids",
            "the token that ended it is in the text decoded at the end",
        ),
        (
            "token_ids and not self._is_text(seq)",
            "token_ids",
            "the last token's text is lost where all is decoded at the end",
        ),
        ("output.text.text[first_char:]", "output.text.text", "a delta has all the text"),
        (
            "return seq.output_len > 0 or seq.finish_reason is not None",
            "return True",
            "a sample that has not begun is given out",
        ),
        (
            "row + position - item.start - 1",
            "row + position - item.start",
            "the prompt's log-probabilities are those of the next row",
        ),
        (
            "or stops or self.params.needs_logprobs",
            "or stops",
            "final outputs lack log-probabilities",
        ),
    ),
    *plant(
        "jax_engine/engine/step_outputs.py",
        VIEW_TESTS,
        (
            "state.add_token(seq, row + i, result)",
            "state.add_token(seq, row, result)",
            "the second sample has the log-probabilities of the first",
        ),
        (
            'seq.finish("stop", stopped_by)',
            "pass",
            "a stop string that the last token completes is no reason",
        ),
        (
            '"stop", stopped_by)\n        else',
            '"stop", None)\n        else',
            "which stop string it was is lost",
        ),
        (
            "        row += item.num_tokens\n",
            "            row += item.num_tokens\n",
            "after an abort the prompt rows of others shift",
        ),
        (
            "            sampled.append((item, row))\n        row += item.num_samples",
            "            sampled.append((item, row))\n            row += item.num_samples",
            "after an abort the sampled rows of others shift",
        ),
        ("if state.streams:", "if state.deltas:", "cumulative outputs are not given out"),
    ),
    *plant(
        "jax_engine/engine/token_logprobs.py",
        VIEW_TESTS,
        ("[row, i]), i + 1, word(top))", "[row, i]), i, word(top))", "ranks begin at 0"),
        ('side="right")', 'side="left")', "a chosen token's rank counts itself"),
        (
            "params.logprobs or 0, word)\n    assert",
            "params.logprobs or 1, word)\n    assert",
            "logprobs=0 gives one more",
        ),
        (
            "int(logprobs.ranks[row])",
            "int(logprobs.ranks[0])",
            "ranks are those of the first row",
        ),
    ),
    *plant(
        "jax_engine/engine/token_logprobs.py",
        LOGPROBS_TESTS,
        ("np.argsort(-logits", "np.argsort(logits", "the least probable tokens"),
    ),
    *plant(
        "jax_engine/logprobs.py",
        LOGPROBS_TESTS,
        ("self.ranks.append(entry.rank)", "self.ranks.append(1)", "flat ranks are lost"),
        ("range(*index.indices(len(self)))", "range(len(self))", "a slice of flat ones is all"),
        ("        } or None", "        }", "an empty position is no None"),
    ),
]
