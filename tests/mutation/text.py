"""Bugs in how tokens become text, and how text ends."""

from tests.mutation.planting import Mutant, plant

DETOKENIZER_TESTS = ("tests/tokenization/test_detokenizer.py",)
STOP_TESTS = ("tests/tokenization/test_stop.py",)
TOKENIZER_TESTS = ("tests/tokenization/test_tokenizer.py", "tests/tokenization/test_detokenizer.py")
CHAT_TESTS = ("tests/tokenization/test_chat.py",)

MUTANTS: list[Mutant] = [
    *plant("jax_engine/tokenization/detokenizer.py", DETOKENIZER_TESTS,
        ('return text.removeprefix(" ")\n', 'return text.lstrip(" ")\n', "all first spaces go"),
        ('("utf-8")("replace")', '("utf-8")("ignore")',
         "bytes of no character vanish from streams"),
        ('return self._stripped(self._decoder.decode(b"", final=True))', 'return ""',
         "the bytes held back at the end are lost"),
        ("list(prompt_ids[-_CONTEXT:])", "list(prompt_ids[:0])",
         "a word does not know that a prompt is before it"),
    ),
    *plant("jax_engine/tokenization/token_bytes.py", DETOKENIZER_TESTS,
        ("int(byte[1], 16)", "int(byte[1], 16) & 0x7F", "bytes above 127 lose a bit"),
        ('token.replace(_SPACE, " ")', 'token.replace(_SPACE, "")', "visible spaces vanish"),
        ('b"" if token is None else', 'b"?" if token is None else', "unknown ids are text"),
    ),
    *plant("jax_engine/tokenization/tokenizer.py", TOKENIZER_TESTS,
        ("add_special_tokens=add_special_tokens).ids", "add_special_tokens=True).ids",
         "BOS is added where it was not asked for"),
    ),
    *plant("jax_engine/tokenization/tokenizer.py", CHAT_TESTS,
        ("self.encode(text, add_special_tokens=False) if tokenize",
         "self.encode(text) if tokenize", "double BOS: the template's and the tokenizer's"),
    ),
    *plant("jax_engine/tokenization/detokenizer.py", STOP_TESTS,
        ("max(0, old + 1 - len(one))", "old",
         "a stop string that begins in what was held back is not found"),
        ("end if self._include else start", "start if self._include else end",
         "include_stop_str_in_output inverted"),
        ("self._held = text[safe:]", 'self._held = ""', "what is held back is lost"),
        ("len(text) - self._longest + 1)", "len(text) - self._longest + 2)",
         "of the longest stop string a part leaks"),
    ),
    *plant("jax_engine/tokenization/chat_template.py", CHAT_TESTS,
        ("            add_generation_prompt=add_generation_prompt,\n",
         "            add_generation_prompt=True,\n", "the model's turn always begins"),
    ),
    *plant("jax_engine/tokenization/chat_content.py", CHAT_TESTS,
        ('"\\n".join(part', '"".join(part', "parts of a content run into each other"),
    ),
    *plant("jax_engine/engine/requests/prompts.py", CHAT_TESTS,
        ("dict(checked.chat_template_kwargs or {})", "{}", "the template's own options are lost"),
        ("tools=checked.tools", "tools=None", "tools do not reach the template"),
    ),
]  # fmt: skip
