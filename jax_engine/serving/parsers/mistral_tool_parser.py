"""The parser of Mistral's calls, of older and newer models."""

import uuid

from jax_engine.serving.parsers.parser_base import Markers, Reading
from jax_engine.serving.parsers.tool_parser import SEPARATORS, ToolParser, json_text

MISTRAL_CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_BEGINS = Markers([MISTRAL_CALLS])


def mistral_id() -> str:
    """A new id of a call: Mistral's templates refuse any other length."""
    return uuid.uuid4().hex[:9]


class MistralToolParser(ToolParser):
    """`[TOOL_CALLS]`, and then objects (older), or `name[ARGS]{..}` or `name{..}`.

    Behind one marker several calls may follow each other.
    """

    def _read(self) -> Reading[None]:
        before = ""
        while marker := (yield from self.until(_BEGINS)):
            pending = before + marker + (yield from self.space())
            char = yield from self.next_char()
            self.give_back(char)
            if char in ("[", "{"):
                after = yield from self.calls(pending)
            else:
                after = yield from self._named_calls(pending)
            before = "" if after is None else (yield from self.before_next(after, MISTRAL_CALLS))

    def _named_calls(self, pending: str) -> Reading[str | None]:
        """As `calls`, of calls that begin with their names."""
        called = yield from self._named(pending, may_be_bare=True)
        while called:
            pending = yield from self.space(SEPARATORS)
            if (yield from self.literal(MISTRAL_CALLS)) is not None:
                self.give_back(MISTRAL_CALLS)
                return pending
            called = yield from self._named(pending)
        return None

    def _named(self, pending: str, *, may_be_bare: bool = False) -> Reading[bool]:
        """Reads a call; if it is none, emits it, behind `pending`.

        Args:
            may_be_bare: whether a tool's name alone is a call. Behind a call it may be prose.

        Returns:
            whether it is a call, and another one may follow.
        """
        name = yield from self.name()
        pending += name
        mark = None
        for one in (CALL_ID, ARGS):
            mark = (yield from self.literal(one)) if name else None
            pending += mark or ""
            if mark == CALL_ID:
                pending += yield from self.name()
        if self.guided and mark == ARGS:  # without it, `max_tokens` may have cut the name
            self.begin_call(name)
            yield from self.arguments_object()
            return False
        may_be_bare = may_be_bare and name in (self.tools or ())
        if not self.guided and (mark == ARGS or may_be_bare):
            pending += yield from self.space()
            if (yield from self._has_no_arguments()):
                self.call(name, "{}")
                return True
        text, whole = ("", False) if not name else (yield from self.json_object())
        called = self._called(f'{{"name": {json_text(name)}, "arguments": {text}}}')
        if whole and called is not None:
            self.call(*called)
            return True
        self.emit(pending + text)
        return False

    def _has_no_arguments(self) -> Reading[bool]:
        """Whether a call ends here: with null, before the next call, or with the model's turn."""
        if (yield from self.literal("null", '""')) is not None:
            return True
        if (yield from self.literal(MISTRAL_CALLS)) is not None:
            self.give_back(MISTRAL_CALLS)
            return True
        char = yield from self.next_char()
        self.give_back(char)
        return not char and not self.cut
