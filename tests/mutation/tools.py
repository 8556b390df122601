"""Bugs in what reads calls and reasoning, and in the grammars that make calls."""

from tests.mutation.planting import Mutant, plant

FIELDS = ("tests/serving/test_client_fields.py",)
READERS = ("tests/serving/tools/test_readers.py",)
GRAMMARS = ("tests/serving/tools/test_grammars.py",)
CHATS = ("tests/serving/tools/test_chat_tools.py",)
FOLDER = "jax_engine/serving/parsers"

MUTANTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/parser_base.py",
        READERS,
        (
            "while held and held not in marks.beginnings:",
            "if held not in marks.beginnings:",
            "a marker that begins within a false beginning is missed",
        ),
        ("self._back = text + self._back", "self._back += text", "letters change places"),
        ("self.emit(held)\n                return", "return", "half a marker at the end is lost"),
        ("None if held or self._back", "None if self._back", "half a marker changes its place"),
    ),
    *plant(
        f"{FOLDER}/json_scanner.py",
        READERS,
        ('self._expect = "key" if', 'self._expect = "first_key" if', "a comma may end an object"),
        (
            'else "after"\n        return True',
            'else "after"\n        return char >= " "',
            "a string with a line break is no call",
        ),
        ('("hex", 4)', '("hex", 3)', "a code point of three digits is taken"),
    ),
    *plant(
        f"{FOLDER}/tool_parser.py",
        READERS,
        (", allow_nan=False", "", "arguments hold Infinity, which is not JSON"),
        ("if self.needs_arguments and not given", "if not given", "a call needs arguments"),
        (
            "next((one for one in given if one is not None), None)",
            "next(iter(given), None)",
            "null hides the arguments behind it",
        ),
        ("yield from self._emit_object(scan)", "pass", "a call within an answer's object is one"),
        ("if self.num_calls and not self._several:", "if False:", "one call becomes several"),
        ("self._gap, self.open = [], True", "self.open = True", "white space between calls stays"),
        ("        return json.dumps(value)\n", "        pass\n", "half a pair cannot be sent"),
    ),
    *plant(
        f"{FOLDER}/tool_parser.py",
        ("tests/serving/tools/test_streams_of_calls.py",),
        ("name, self._length)", "name, 0)", "text before a call stands behind it"),
    ),
    *plant(
        f"{FOLDER}/json_tool_parsers.py",
        READERS,
        ("self.calls(before + marker)", 'self.calls("")', "a malformed call loses its marker"),
        ('"" if ended else after', '""', "text behind a call without its end is lost"),
    ),
    *plant(
        f"{FOLDER}/json_tool_parsers.py",
        READERS,
        ("needs_arguments = True", "needs_arguments = False", "an answer with a name is a call"),
        ("return not self.has_prose or self.names", "return self.names", "a call is of any name"),
        ("return not self.has_prose or key", "return key", "calls begin with certain keys only"),
    ),
    *plant(
        f"{FOLDER}/mistral_tool_parser.py",
        READERS,
        ("not char and not self.cut", "not char", "a call that was cut is one without arguments"),
        ("for one in (CALL_ID, ARGS):", "for one in (ARGS,):", "the id of a call is not read"),
    ),
    *plant(
        f"{FOLDER}/pythonic_tool_parser.py",
        READERS,
        (
            "text += yield from self.next_char()",
            "pass",
            "an escaped quote ends a string",
        ),
        ("quote * 3 if text else quote", "quote", "a quote ends a string of three quotes"),
    ),
    *plant(
        f"{FOLDER}/pythonic_tool_parser.py",
        ("tests/serving/tools/test_python_calls.py",),
        ("RecursionError, ", "", "a deep text is an exception"),
        ("if item[0] in found:", "if not item[0]:", "an argument given twice is lost"),
        ("text if raw else", "text if not raw else", "a raw string has escapes"),
        ("or commas or not found", "or not found", "a tuple of one value is that value"),
    ),
    *plant(
        f"{FOLDER}/reasoning_parser.py",
        READERS,
        (
            "self._reasoning += [*self._gap, stripped]",
            "self._reasoning.append(stripped)",
            "blanks within reasoning are lost",
        ),
        (
            'if begun is None and self._start == "maybe":',
            "if begun is None:",
            "reasoning that the prompt opened is content",
        ),
    ),
    *plant(
        f"{FOLDER}/lark_grammar.py",
        GRAMMARS,
        ("& ~/(.|", "| /(.|", "a marker that is spelled out passes for text"),
        ('"[lazy]")', '"")', "calls behind a text are free of their schema"),
    ),
    *plant(
        f"{FOLDER}/tool_formats.py",
        GRAMMARS,
        (
            'return f"{call} ({before_next} {call})*" if several else call',
            'return f"{call} ({before_next} {call})*"',
            "parallel_tool_calls=false is ignored",
        ),
    ),
    *plant(
        "jax_engine/serving/api/turn_parsing.py",
        GRAMMARS,
        ("t if t.strict else", "t if not t.strict else", "the wrong tools are strict"),
        ('if start == "maybe":', 'if start == "inside":', "reasoning that is open may be missing"),
        ("and (strict or not choice.several", "and (not choice.several", "strict is ignored"),
        ("return own, with_grammar and (", "return own, (", "a form without a grammar is refused"),
        ('lenient=choice.kind == "auto"', "lenient=False", "uniqueItems is an error with auto"),
    ),
    *plant(
        f"{FOLDER}/turn_parser.py",
        GRAMMARS,
        ("and not calls.open", "", "a call that was cut ends with tool_calls"),
    ),
    *plant(
        f"{FOLDER}/turn_parser.py",
        CHATS,
        ("reasoning if self._include else", "reasoning or", "include_reasoning is ignored"),
    ),
    *plant(
        "jax_engine/serving/api/response_logprobs.py",
        ("tests/serving/test_offsets.py",),
        ("if not text.startswith(own, at):", "if text.startswith(own, at):", "BOS has a length"),
        ("self._at = len(text)", "self._at = at", "an output begins within its prompt"),
    ),
    *plant(
        "jax_engine/serving/api/endpoint_responses.py",
        FIELDS,
        ("self._generated.get((number, choice), 0)", "0", "no choice uses any tokens"),
    ),
    *plant(
        "jax_engine/serving/api/request_prompts.py",
        FIELDS,
        ("is not None and not settings.trust", "is not None and settings.trust", "all are trusted"),
    ),
    *plant(
        "jax_engine/serving/api/request_prompts.py",
        CHATS,
        (
            "message | dict.fromkeys(_REASONING, given[0])",
            "message",
            "templates that read reasoning_content do not find reasoning",
        ),
    ),
]
