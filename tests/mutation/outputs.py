"""Bugs in what clients are given: completions, deltas, log-probabilities."""

from tests.mutation.planting import Mutant, plant

SEQUENCE_TESTS = ("tests/engine/test_sequence_text.py",)
TEXT_TESTS = ("tests/engine/test_llm_text.py",)
VIEW_TESTS = ("tests/engine/test_results.py", "tests/properties/test_client_view.py")
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
        "jax_engine/engine/results.py",
        TEXT_TESTS,
        (
            "tokenizer if params.detokenize else None",
            "tokenizer",
            "words of tokens without detokenization",
        ),
    ),
    *plant(
        "jax_engine/engine/sequence_results.py",
        TEXT_TESTS,
        (
            "        if self._is_text(seq):\n            self._text.add([token])",
            "        self._text.add([token])",
            "a stop token is text",
        ),
    ),
    *plant(
        "jax_engine/engine/sequence_results.py",
        VIEW_TESTS,
        (
            "self._text.finish()  # what was held back",
            "pass  # what was held back",
            "an abort loses the text held back",
        ),
        (
            "if seq.finish_reason is not None:\n            self._text.finish()",
            "if False:\n            self._text.finish()",
            "the last token loses the text held back",
        ),
        (
            "return not ended_by_token or self._params.include_stop_str_in_output",
            "return not ended_by_token",
            "include_stop_str_in_output is for strings only",
        ),
        (
            "float(result.logprobs.logprobs[row])",
            "float(result.logprobs.logprobs[0])",
            "sums are of the first row's log-probabilities",
        ),
        (
            "tokens if self._is_text(seq) else tokens[:-1]",
            "tokens",
            "the token that ended it is in the text decoded at the end",
        ),
        (
            "tokens if self._is_text(seq) else tokens[:-1]",
            "tokens[:-1]",
            "the last token's text is lost where all is decoded at the end",
        ),
    ),
    *plant(
        "jax_engine/engine/results.py",
        VIEW_TESTS,
        (
            "-self._sequence(seq).cumulative_logprob",
            "-self._sequence(seq).cumulative_logprob / max(seq.output_len, 1)",
            "best_of by the mean",
        ),
        ("if finished and self._params", "if self._params", "best_of is sorted too early"),
        (
            "Logprob(logprob, rank, self._word(token))",
            "Logprob(logprob, rank + 1, self._word(token))",
            "the best token of a beam has rank 2",
        ),
        (
            " and not params.use_beam_search",
            "",
            "the text of a beam is that of all ways that were tried",
        ),
        (
            "        return seqs[: self._params.n]",
            "        return list(seqs)",
            "best_of returns all",
        ),
        ("num_chars + len(delta.text)", "len(delta.text)", "a delta repeats text"),
        (
            "= num_tokens, num_chars, seq.finish_reason is not None",
            "= num_tokens, num_chars, False",
            "an end is told again with the next delta",
        ),
        ("logprobs[first_token:]", "logprobs", "a delta repeats log-probabilities"),
        ("results.text(seq)[first_char:]", "results.text(seq)", "a delta has all the text"),
        (
            "for seq in seqs if seq.output_len or seq.finish_reason is not None",
            "for seq in seqs",
            "a sample that has not begun is given out",
        ),
        (
            "row + position - item.start - 1",
            "row + position - item.start",
            "the prompt's log-probabilities are those of the next row",
        ),
        (
            "or bool(params.stop) or sampled_logprobs",
            "or bool(params.stop)",
            "final outputs lack log-probabilities",
        ),
    ),
    *plant(
        "jax_engine/engine/step_outputs.py",
        VIEW_TESTS,
        (
            ".take_token(seq, row + i, result)",
            ".take_token(seq, row, result)",
            "the second sample has the log-probabilities of the first",
        ),
        (
            "if stopped_by is not None:",
            "if stopped_by is not None and seq.finish_reason is None:",
            "a stop string that the last token completes is no reason",
        ),
        (
            '"stop", stopped_by)',
            '"stop", None)',
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
        (
            "if results.streams:",
            "if request.params.gives_deltas:",
            "cumulative outputs are not given out",
        ),
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
