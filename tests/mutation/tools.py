"""Bugs in what reads calls and reasoning, and in the grammars that make calls."""

from tests.mutation.planting import Mutant, plant

READERS = ("tests/serving/tools/test_readers.py",)
GRAMMARS = ("tests/serving/tools/test_grammars.py",)
CHATS = ("tests/serving/tools/test_chat_tools.py",)
FOLDER = "jax_engine/serving/openai/tools"

MUTANTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/letters.py",
        READERS,
        (
            "while held and held not in marks.beginnings:",
            "if held not in marks.beginnings:",
            "a marker that begins within a false beginning is missed",
        ),
        ("self._back = text + self._back", "self._back += text", "letters change places"),
        ("self.say(held)\n                return", "return", "half a marker at the end is lost"),
        ("None if held or self._back", "None if self._back", "half a marker changes its place"),
    ),
    *plant(
        f"{FOLDER}/json_scan.py",
        READERS,
        ('self._expect = "key" if', 'self._expect = "first_key" if', "a comma may end an object"),
        ('return char >= " "', "return True", "a string may hold a line break"),
        ('("hex", 4)', '("hex", 3)', "a code point of three digits is taken"),
    ),
    *plant(
        f"{FOLDER}/call_reader.py",
        READERS,
        (", allow_nan=False", "", "arguments hold Infinity, which is not JSON"),
        ("if not isinstance(arguments, dict):", "if arguments is None:", "a list as arguments"),
        ("self._gap, self.open = [], True", "self.open = True", "white space between calls stays"),
        ("        return json.dumps(value)\n", "        pass\n", "half a pair cannot be sent"),
    ),
    *plant(
        f"{FOLDER}/json_readers.py",
        READERS,
        ("self.say(marker + before + text)", "self.say(text)", "a malformed call loses its marker"),
        ("needs_arguments = True", "needs_arguments = False", "an answer with a name is a call"),
    ),
    *plant(
        f"{FOLDER}/mistral_reader.py",
        READERS,
        ("for one in (CALL_ID, ARGS):", "for one in (ARGS,):", "the id of a call is not read"),
    ),
    *plant(
        f"{FOLDER}/pythonic_reader.py",
        READERS,
        ("or node.args:", "and node.args:", "unnamed arguments are dropped"),
        (
            "RecursionError, MemoryError):\n        return None",
            "MemoryError):\n        return None",
            "a deep text is an exception",
        ),
        (
            "text += yield from self.next_char()",
            "pass",
            "an escaped quote ends a string",
        ),
    ),
    *plant(
        f"{FOLDER}/reasoning.py",
        READERS,
        (
            "self._reasoning += [*self._gap, said]",
            "self._reasoning.append(said)",
            "blanks within reasoning are lost",
        ),
        (
            'if begun is None and self._start == "maybe":',
            "if begun is None:",
            "reasoning that the prompt opened is content",
        ),
    ),
    *plant(
        f"{FOLDER}/lark.py",
        GRAMMARS,
        ("& ~/(.|", "| /(.|", "a marker that is spelled out passes for text"),
        ('"[lazy]")', '"")', "calls behind a text are free of their schema"),
    ),
    *plant(
        f"{FOLDER}/formats.py",
        GRAMMARS,
        (
            'return f"{call} ({before_next} {call})*" if several else call',
            'return f"{call} ({before_next} {call})*"',
            "parallel_tool_calls=false is ignored",
        ),
    ),
    *plant(
        f"{FOLDER}/plan.py",
        GRAMMARS,
        ("t if t.strict else", "t if not t.strict else", "the wrong tools are strict"),
        ('if start == "maybe":', 'if start == "inside":', "reasoning that is open may be missing"),
        ("and (strict or not choice.several", "and (not choice.several", "strict is ignored"),
        ("return own, with_grammar and (", "return own, (", "a form without a grammar is refused"),
        ('lenient=choice.kind == "auto"', "lenient=False", "uniqueItems is an error with auto"),
    ),
    *plant(
        f"{FOLDER}/model_turn.py",
        GRAMMARS,
        ("and not calls.open", "", "a call that was cut ends with tool_calls"),
    ),
    *plant(
        f"{FOLDER}/model_turn.py",
        CHATS,
        ("reasoning if self._include else", "reasoning or", "include_reasoning is ignored"),
    ),
    *plant(
        f"{FOLDER}/inbound.py",
        CHATS,
        (
            "message | dict.fromkeys(_REASONING, given[0])",
            "message",
            "templates that read reasoning_content do not find reasoning",
        ),
    ),
]
