"""Bugs in what reads calls and reasoning, and in the grammars that make calls."""

from tests.mutation.planting import Mutant, plant

FIELDS = ("tests/serving/test_client_fields.py",)
READERS = ("tests/serving/tools/test_readers.py",)
GRAMMARS = ("tests/serving/tools/test_grammars.py",)
CHATS = ("tests/serving/tools/test_chat_tools.py",)
FOLDER = "jax_engine/serving/parsers"

MUTANTS: list[Mutant] = [
    *plant(f"{FOLDER}/parser_base.py", READERS,
        ("while held and held not in marks.beginnings:", "if held not in marks.beginnings:",
         "a marker that begins within a false beginning is missed"),
        ("self._back = text + self._back", "self._back += text", "letters change places"),
    ),
    *plant(f"{FOLDER}/json_scanner.py", READERS,
        ('self._expect = "key" if', 'self._expect = "first_key" if', "a comma may end an object"),
        ('else "after"\n        return True', 'else "after"\n        return char >= " "',
         "a string with a line break is no call"),
    ),
    *plant(f"{FOLDER}/tool_parser.py", READERS,
        (", allow_nan=False", "", "arguments hold Infinity, which is not JSON"),
        ("next((one for one in given if one is not None), None)", "next(iter(given), None)",
         "null hides the arguments behind it"),
    ),
    *plant(f"{FOLDER}/tool_parser.py", ("tests/serving/tools/test_streams_of_calls.py",),
        ("name, self._length)", "name, 0)", "text before a call stands behind it"),
    ),
    *plant(f"{FOLDER}/json_tool_parsers.py", READERS,
        ("needs_arguments = True", "needs_arguments = False", "an answer with a name is a call"),
    ),
    *plant(f"{FOLDER}/mistral_tool_parser.py", READERS,
        ("for one in (CALL_ID, ARGS):", "for one in (ARGS,):", "the id of a call is not read"),
    ),
    *plant(f"{FOLDER}/pythonic_tool_parser.py", ("tests/serving/tools/test_python_calls.py",),
        ("RecursionError, ", "", "a deep text is an exception"),
        ("if item[0] in found:", "if not item[0]:", "an argument given twice is lost"),
    ),
    *plant(f"{FOLDER}/reasoning_parser.py", READERS,
        ("self._reasoning += [*self._gap, stripped]", "self._reasoning.append(stripped)",
         "blanks within reasoning are lost"),
    ),
    *plant("jax_engine/guided/lark_grammar.py", GRAMMARS,
        ("& ~/(.|", "| /(.|", "a marker that is spelled out passes for text"),
        ('"[lazy]")', '"")', "calls behind a text are free of their schema"),
    ),
    *plant(f"{FOLDER}/reasoning_parser.py", GRAMMARS,
        ('return thought if start == "inside"', 'return thought if start == ""',
         "reasoning that is open may be missing"),
    ),
    *plant(f"{FOLDER}/turn_parser.py", CHATS,
        ("reasoning if self._include else", "reasoning or", "include_reasoning is ignored"),
    ),
    *plant("jax_engine/serving/api/response_logprobs.py", ("tests/serving/test_offsets.py",),
        ("self._at = len(text)", "self._at = at", "an output begins within its prompt"),
    ),
    *plant("jax_engine/serving/api/endpoint_responses.py", FIELDS,
        ("self._generated.get((number, choice), 0)", "0", "no choice uses any tokens"),
    ),
]  # fmt: skip
