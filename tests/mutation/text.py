"""Bugs in how tokens become text, and how text ends."""

from tests.mutation.planting import Mutant, plant

DETOKENIZER_TESTS = ("tests/tokenization/test_detokenizer.py",)
STOP_TESTS = ("tests/tokenization/test_stop.py",)
TOKENIZER_TESTS = ("tests/tokenization/test_tokenizer.py", "tests/tokenization/test_detokenizer.py")
CHAT_TESTS = ("tests/tokenization/test_chat.py",)

MUTANTS: list[Mutant] = [
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
        "jax_engine/tokenization/detokenizer.py",
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
        "jax_engine/tokenization/chat_template.py",
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
        "jax_engine/engine/prompts.py",
        CHAT_TESTS,
        (
            "cannot_fit=cannot_fit, add_special_tokens=False",
            "cannot_fit=cannot_fit, add_special_tokens=True",
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
