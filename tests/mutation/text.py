"""Bugs in what clients give and are given: parameters, chats, text, stop strings, outputs."""

from tests.mutation.planting import Mutant, plant

DETOKENIZER_TESTS = ("tests/tokenization/test_detokenizer.py",)
STOP_TESTS = ("tests/tokenization/test_stop.py",)
TOKENIZER_TESTS = ("tests/tokenization/test_tokenizer.py", "tests/tokenization/test_detokenizer.py")
CHAT_TESTS = ("tests/tokenization/test_chat.py",)
SEQUENCE_TESTS = ("tests/engine/test_sequence_text.py",)
TEXT_TESTS = ("tests/engine/test_llm_text.py",)
VIEW_TESTS = ("tests/properties/test_client_view.py",)
PARAMS_TESTS = ("tests/engine/test_parameters_pair.py", "tests/engine/test_sampling_params.py")
SAMPLER_TESTS = ("tests/sampling/test_sampler.py",)
LOGPROBS_TESTS = ("tests/engine/test_logprobs.py",)

TOKENIZATION: list[Mutant] = [
    *plant(
        "jax_engine/tokenization/detokenizer.py",
        DETOKENIZER_TESTS,
        ("at_start=not prompt_ids", "at_start=True", "behind a prompt the first space is dropped"),
        ("if self._strip and text:", "if self._strip:", "a first piece without text keeps a space"),
        ("self._strip = False\n", "pass\n", "each piece loses its space"),
        ('return text.removeprefix(" ")\n', 'return text.lstrip(" ")\n', "all first spaces go"),
        (
            '("utf-8")("replace")',
            '("utf-8")("ignore")',
            "bytes of no character vanish from streams",
        ),
        (
            'held[:1] == b"\\xed" and held[1:] >= b"\\xa0"',
            "False",
            "half of a surrogate pair is held back",
        ),
        (
            'return self._stripped(self._decoder.decode(b"", final=True))',
            'return ""',
            "the bytes held back at the end are lost",
        ),
        (
            "hidden = tokenizer.special_ids if skip_special_tokens else frozenset()",
            "hidden = tokenizer.special_ids",
            "special tokens are never shown in streams",
        ),
        (
            "list(prompt_ids[-_CONTEXT:])",
            "list(prompt_ids[:0])",
            "a word does not know that a prompt is before it",
        ),
    ),
    *plant(
        "jax_engine/tokenization/token_bytes.py",
        DETOKENIZER_TESTS,
        ("range(0xAE, 0x100)", "range(0xAD, 0x100)", "the soft hyphen counts as printable"),
        ("range(0xA1, 0xAD)", "range(0xA1, 0xAC)", "a printable byte does not"),
        ("int(byte[1], 16)", "int(byte[1], 16) & 0x7F", "bytes above 127 lose a bit"),
        ('token.replace(_SPACE, " ")', 'token.replace(_SPACE, "")', "visible spaces vanish"),
        ("strips_first_space = True", "strips_first_space = False", "a first space stays"),
        ('b"" if token is None else', 'b"?" if token is None else', "unknown ids are text"),
    ),
    *plant(
        "jax_engine/tokenization/tokenizer.py",
        TOKENIZER_TESTS,
        (
            'text.removeprefix(" ") if table.strips_first_space else text',
            "text",
            "a first space stays in the one-shot text",
        ),
        (
            "hidden = self.special_ids if skip_special_tokens else frozenset()",
            "hidden = self.special_ids",
            "special tokens are never shown",
        ),
        (
            "add_special_tokens=add_special_tokens).ids",
            "add_special_tokens=True).ids",
            "BOS is added where it was not asked for",
        ),
    ),
    *plant(
        "jax_engine/tokenization/tokenizer.py",
        CHAT_TESTS,
        (
            "self.encode(text, add_special_tokens=False) if tokenize",
            "self.encode(text) if tokenize",
            "double BOS: the template's and the tokenizer's",
        ),
    ),
    *plant(
        "jax_engine/tokenization/stop.py",
        STOP_TESTS,
        ("if found and may_end:", "if found:", "stop strings do not wait for min_tokens"),
        (
            "max(0, old + 1 - len(one))",
            "0",
            "a stop string that was complete too early counts when it is looked at again",
        ),
        (
            "max(0, old + 1 - len(one))",
            "old",
            "a stop string that begins in what was held back is not found",
        ),
        ("= min(found)", "= max(found)", "the stop string that is complete last ends the text"),
        (
            "end if self._include else start",
            "start if self._include else end",
            "include_stop_str_in_output inverted",
        ),
        ("self._held = text[safe:]", 'self._held = ""', "what is held back is lost"),
        (" and one != end", "", "a whole stop string that did not count is held back"),
        ('held, self._held = self._held, ""', "held = self._held", "what was held comes twice"),
        (
            "len(text) - self._longest + 1)",
            "len(text) - self._longest + 2)",
            "of the longest stop string a part leaks",
        ),
    ),
    *plant(
        "jax_engine/tokenization/chat.py",
        CHAT_TESTS,
        (
            "            add_generation_prompt=add_generation_prompt,\n",
            "            add_generation_prompt=True,\n",
            "the model's turn always begins",
        ),
    ),
    *plant(
        "jax_engine/tokenization/chat_content.py",
        CHAT_TESTS,
        ('"\\n".join(part', '"".join(part', "parts of a content run into each other"),
        ("if _PROBE in text and \"'type'\" not in text:", "if _PROBE in text:", "a printed list"),
    ),
    *plant(
        "jax_engine/engine/conversations.py",
        CHAT_TESTS,
        (
            "kwargs, add_special_tokens=False)",
            "kwargs, add_special_tokens=True)",
            "double BOS in LLM.chat",
        ),
        ("dict(checked.chat_template_kwargs or {})", "{}", "the template's own options are lost"),
        (
            "bool(messages) and isinstance(messages[0], Mapping)",
            "True",
            "many conversations are taken for one",
        ),
        (
            '"" if one_only else f"conversation {i}: "',
            '""',
            "which conversation is bad is not said",
        ),
        ("tools=checked.tools", "tools=None", "tools do not reach the template"),
    ),
]

OUTPUTS: list[Mutant] = [
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

PARAMETERS: list[Mutant] = [
    *plant(
        "jax_engine/sampling_params.py",
        PARAMS_TESTS,
        ("GREEDY_EPS = 1e-5", "GREEDY_EPS = 1e-4", "small temperatures are greedy"),
        ("if self.seed == -1:", "if self.seed == -2:", "-1 is a seed"),
        (
            "setattr(self, name, list(value))",
            "pass",
            "a shared mutable parameter: the caller's lists",
        ),
        (
            "return deepcopy(self, {id(one): one for one in self.logits_processors or ()})",
            "return copy(self)",
            "a clone shares its lists",
        ),
        (
            "if value is not None or name not in _NONE_IS_DEFAULT",
            "if value is not None",
            "from_optional takes max_tokens=None for 16",
        ),
        (
            "[self.stop] if isinstance(self.stop, str) else list(self.stop)",
            "list(self.stop)",
            "each character of a stop string stops",
        ),
        (
            "wanted or self.num_samples > self.n or",
            "wanted or",
            "best_of without the sums that it compares",
        ),
        (
            "RequestOutputKind.DELTA and not self.use_beam_search",
            "RequestOutputKind.DELTA",
            "beams give deltas",
        ),
        ("self.n if self.best_of is None else self.best_of", "self.n", "best_of is ignored"),
    ),
    *plant(
        "jax_engine/sampling_checks.py",
        PARAMS_TESTS,
        (
            "params.top_p, 0.0, 1.0, open_low=True",
            "params.top_p, 0.0, 1.0",
            "top_p=0 is accepted",
        ),
        ("params.min_tokens > params.max_tokens", "False", "min_tokens beyond max_tokens"),
        (
            "params.gives_deltas and params.num_samples > params.n",
            "params.gives_deltas and params.num_samples >= params.n",
            "deltas with n=best_of are refused",
        ),
        ("-(2**63), 2**64 - 1)", "-(2**63), 2**63 - 1)", "seeds of 64 bits are refused"),
        ("min(100.0, max(-100.0, float(bias)))", "float(bias)", "biases are not clipped"),
        ("token_id = int(token)", "token_id = token", "JSON's keys are refused"),
        ("params.greedy and params.num_samples > 1", "params.greedy and params.n > 1", "best_of"),
        ("params.stop_strings and not params.detokenize", "False", "stop strings without text"),
        ('("top_k", (0, -1))', '("top_k", (0,))', "top_k=-1 is refused with beams"),
        (
            "params.logprobs not in (None, len(tokens))",
            "params.logprobs is not None",
            "logprobs is refused beside its own number of tokens",
        ),
    ),
    *plant(
        "jax_engine/sampling/inputs.py",
        SAMPLER_TESTS,
        ("(seed >> 32) & 0xFFFFFFFF", "0", "the upper bits of a seed do not count"),
        (
            "            params.top_p,\n",
            "            params.top_p if params.top_p < 0.999 else 1.0,\n",
            "a top_p between 0.999 and 1 is off",
        ),
    ),
    *plant(
        "jax_engine/engine/request_checks.py",
        VIEW_TESTS,
        ("own.__post_init__()", "pass", "what was changed since is not checked, nor copied"),
        ("own = copy(params)", "own = params", "a request changes with its caller's parameters"),
    ),
]

MUTANTS: list[Mutant] = [*TOKENIZATION, *OUTPUTS, *PARAMETERS]
