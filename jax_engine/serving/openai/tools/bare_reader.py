"""Reader of calls that no marker announces: JSON objects, alone or in a list (Llama 3)."""

from jax_engine.serving.openai.tools.call_reader import CallReader
from jax_engine.serving.openai.tools.letters import Marks, Reading

PYTHON_TAG = "<|python_tag|>"
_BEGINS = Marks(["{", "[", PYTHON_TAG])
# What calls begin with. So another object behind prose need not be held back up to its end.
_FIRST_KEYS = frozenset({"name", "parameters", "arguments", "type", "id"})


class BareReader(CallReader):
    """`{"name": .., "parameters": {..}}`, anywhere in the text; several may follow each other.

    An object without arguments is a call only if its name is that of a tool. So is one behind
    prose, where the names of tools are known.
    """

    needs_arguments = True

    def _read(self) -> Reading[None]:
        if self.guided:  # the grammar lets nothing but the whole turn be calls
            said = yield from self.space()
            said += (yield from self.literal(PYTHON_TAG)) or ""
            self.say((yield from self.calls(said, lists=False)) or "")
            yield from self.rest()
        while mark := (yield from self.until(_BEGINS)):
            said = ""
            if mark == PYTHON_TAG:
                said = mark + (yield from self.space())
                mark = yield from self.next_char()
            self.give_back(mark)
            if mark in ("{", "["):
                yield from self.bare_calls(mark, said)
            else:
                self.say(said)

    def bare_calls(self, mark: str, said: str) -> Reading[None]:
        """Reads calls, up to where none follows.

        Args:
            mark: the bracket that comes next; at least it is read.
            said: what was read already: content if no call follows.
        """
        if mark == "[" and not (yield from self.opens_list()):
            self.say(said + (yield from self.next_char()))
            return
        self.say((yield from self.calls(said)) or "")

    def may_call(self, name: str) -> bool:
        """Whether this name makes a call of what else looks like one."""
        return not self.has_prose or self.names is None or name in self.names

    def may_begin(self, key: str) -> bool:
        """As `CallReader.may_begin`."""
        return not self.has_prose or key in _FIRST_KEYS
