"""Bugs in what clients are given: completions, deltas, log-probabilities."""

from tests.mutation.planting import Mutant, plant

SEQUENCE_TESTS = ("tests/engine/test_sequence_text.py",)
CUT_TESTS = ("tests/engine/test_assembler.py",)
TEXT_TESTS = ("tests/engine/test_llm_text.py",)
VIEW_TESTS = ("tests/engine/test_results.py", "tests/properties/test_client_view.py")
LOGPROBS_TESTS = ("tests/engine/test_logprobs.py",)

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/engine/assembler.py",
        SEQUENCE_TESTS,
        (
            "self._num_tokens > self._min_tokens",
            "self._num_tokens >= self._min_tokens",
            "the last of min_tokens may complete a stop string",
        ),
        ("self._certain(self._detokenizer.flush())", '""', "half a character at the end is lost"),
        (
            "text += self._stops.flush()",
            "pass",
            "text that a stop string might have begun with is lost at the end",
        ),
        (
            "StopChecker(stops, self._includes_stop)",
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
        "jax_engine/engine/assembler.py",
        VIEW_TESTS,
        ("if ended_by_token and not self._includes_stop:", "if False:", "a stop token is text"),
        (
            "if ended_by_token and not self._includes_stop:",
            "if ended_by_token:",
            "include_stop_str_in_output is for strings only",
        ),
        (
            "ended_by_token and not self._includes_stop:",
            "finish_reason is not None and not self._includes_stop:",
            "the last token's text is lost, whatever ended it",
        ),
        ("text + self._rest()", "text", "the last token loses the text held back"),
    ),
    *plant(
        "jax_engine/engine/assembler.py",
        TEXT_TESTS,
        (
            "tokenizer if params.detokenize else None",
            "tokenizer",
            "words of tokens without detokenization",
        ),
    ),
    *plant(
        "jax_engine/engine/assembler.py",
        (*CUT_TESTS, "tests/engine/test_results.py"),
        (
            'sample.text, sample.token_ids, sample.logprobs = "", [], None',
            "sample.token_ids, sample.logprobs = [], None",
            "a delta has all the text",
        ),
        (
            'sample.text, sample.token_ids, sample.logprobs = "", [], None',
            'sample.text, sample.token_ids = "", []',
            "a delta repeats log-probabilities",
        ),
        (
            "sample.end_read = sample.num_tokens, sample.finish_reason is not None",
            "sample.end_read = sample.num_tokens, False",
            "an end is told again with the next delta",
        ),
        ("elif not self.finished:", "elif False:", "outputs that were given out grow"),
        (
            "            chosen = [(index, one) for index, one in chosen if one.has_output]\n",
            "            pass\n",
            "a delta has samples with nothing new",
        ),
        (
            "if core_output.finished and self._params.is_ranked:",
            "if False:",
            "the best is where it was sampled",
        ),
        (
            "                sample.logprobs.extend(new)\n",
            "                sample.logprobs = new\n",
            "log-probabilities that were not read are lost",
        ),
        (
            "            sample.text += output.text\n",
            "            sample.text = output.text\n",
            "the engine's text that was not read is lost",
        ),
        (
            "places[:-1], places[1:], lists",
            "places[:-1], places[:-1], lists",
            "flat positions are empty",
        ),
    ),
    *plant(
        "jax_engine/engine/results.py",
        CUT_TESTS,
        (
            '= "", seq.finish_reason is not None',
            '= "", False',
            "an end is handed over again with the next news",
        ),
    ),
    *plant(
        "jax_engine/engine/results.py",
        VIEW_TESTS,
        (
            'sample.text += sample.maker.take([], "abort")',
            "pass",
            "an abort loses the text held back",
        ),
        (
            "float(result.logprobs.logprobs[row])",
            "float(result.logprobs.logprobs[0])",
            "sums are of the first row's log-probabilities",
        ),
        (
            "-self._sample(seq).cumulative_logprob",
            "-self._sample(seq).cumulative_logprob / max(seq.output_len, 1)",
            "best_of by the mean",
        ),
        ("if finished and self._params", "if self._params", "best_of is sorted too early"),
        ("[rank for _, rank in", "[rank + 1 for _, rank in", "a beam's best token has rank 2"),
        ("seqs[: self._params.n]", "seqs", "best_of returns all"),
        (
            "if all_of or self._has_output(seq)",
            "if self._has_output(seq)",
            "of best_of those are returned that have news",
        ),
        (
            'sample.text, sample.end_given = "", seq',
            "sample.end_given = seq",
            "text is handed over again",
        ),
        (
            "            sample.logprobs = LogprobLists()\n        return",
            "            pass\n        return",
            "log-probabilities are handed over again",
        ),
        (
            "return seq.output_len > sample.num_given or ended",
            "return True",
            "a sample that has not begun is given out",
        ),
        (
            "(params.needs_logprobs or bool(params.stop))",
            "bool(params.stop)",
            "final outputs lack log-probabilities",
        ),
    ),
    *plant(
        "jax_engine/engine/pipeline.py",
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
            "            sampled.append((item, row))\n        row += item.num_draws",
            "            sampled.append((item, row))\n            row += item.num_draws",
            "after an abort the sampled rows of others shift",
        ),
        (
            "if results.streams:",
            "if request.params.gives_deltas:",
            "cumulative outputs are not given out",
        ),
    ),
    *plant(
        "jax_engine/engine/results.py",
        VIEW_TESTS,
        (
            "del tops[at], values[at], ranks[at]",
            "del tops[at], values[at], ranks[-1]",
            "the ranks of the others close up",
        ),
        ('side="right")', 'side="left")', "a chosen token's rank counts itself"),
        ("[token], params.logprobs or 0)", "[token], params.logprobs or 1)", "0 gives one more"),
        (
            "logprobs.ranks[rows].tolist()",
            "logprobs.ranks[: len(token_ids)].tolist()",
            "ranks are those of the first row",
        ),
    ),
    *plant(
        "jax_engine/engine/results.py",
        LOGPROBS_TESTS,
        ("np.argsort(-logits", "np.argsort(logits", "the least probable tokens"),
    ),
    *plant(
        "jax_engine/outputs.py",
        LOGPROBS_TESTS,
        ("self.ranks.append(entry.rank)", "self.ranks.append(1)", "flat ranks are lost"),
        ("range(*index.indices(len(self)))", "range(len(self))", "a slice of flat ones is all"),
        ("        } or None", "        }", "an empty position is no None"),
    ),
]
