"""Reader of calls that are Python: `[search(query="x", limit=3), now()]`; of JSON calls, too."""

import re

from jax_engine.serving.openai.tools.bare_reader import BareReader
from jax_engine.serving.openai.tools.call_reader import SEPARATORS
from jax_engine.serving.openai.tools.letters import Reading
from jax_engine.serving.openai.tools.python_calls import python_calls

MAX_LETTERS, MAX_NAME = 1 << 20, 256
_BEGINS = re.compile(r"\[\s*([^\W\d][\w.:-]*)?\s*")


class PythonicReader(BareReader):
    """Lists of calls with named arguments, all of them literals; or calls as JSON."""

    def bare_calls(self, mark: str, said: str) -> Reading[None]:
        """As `BareReader.bare_calls`."""
        if mark == "{" or (yield from self.opens_list()):
            yield from super().bare_calls(mark, said)
            return
        while mark == "[" and not (yield from self.opens_list()):
            text = yield from self._bracketed()
            calls = python_calls(text)
            if calls is None or not all(self.may_call(name) for name, _ in calls):
                self.say(said + text)
                return
            for call in calls:
                self.call(*call)
            said = yield from self.space(SEPARATORS)
            mark = yield from self.next_char()
            self.give_back(mark)
        self.say(said)

    def _bracketed(self) -> Reading[str]:
        """Text up to the end of its first bracket, or up to where it can be no list of calls."""
        text, depth, is_call = "", 0, False
        while char := (yield from self.next_char()):
            text += char
            if is_call and char in "'\"":
                text += yield from self._rest_of_string(char)
            depth += (char in "[({") - (char in "])}")
            if not is_call:
                begun = _BEGINS.fullmatch(text.removesuffix("("))
                is_call = char == "(" and begun is not None and bool(begun[1])
                if is_call and begun is not None and not self.may_call(begun[1]):
                    break
                if begun is None or len(text) > MAX_NAME or (char == "(" and not is_call):
                    break
            if depth == 0 or len(text) > MAX_LETTERS:
                break
        return text

    def _rest_of_string(self, quote: str) -> Reading[str]:
        """Text up to the end of a string, of which the first quote was read."""
        second = yield from self.next_char()
        third = (yield from self.next_char()) if second == quote else ""
        if second != quote:
            self.give_back(second)
        elif third != quote:
            self.give_back(third)
            return second
        text = second + third if second == quote else ""
        end = quote * 3 if text else quote
        begin = len(text)
        while char := (yield from self.next_char()):
            text += char
            if char == "\\":
                text += yield from self.next_char()
            elif text.endswith(end, begin) or len(text) > MAX_LETTERS:
                break
        return text
