"""What a turn said, as `/v1/chat/completions` writes it. A field that is `UNSET` is not written."""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from jax_engine.serving.openai.turns import CallPiece


class CalledFunction(Struct):
    """The tool of a call, and its arguments as JSON text."""

    arguments: str
    name: str | UnsetType = UNSET


class ToolCall(Struct):
    """A call of a tool."""

    id: str
    function: CalledFunction
    type: str = "function"


class ToolCallDelta(Struct):
    """What is new in a call: its id and its tool's name come first, then its arguments."""

    index: int
    function: CalledFunction
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


def tool_calls(pieces: Sequence[CallPiece]) -> list[ToolCall]:
    """Whole calls."""
    calls: list[ToolCall] = []
    for piece in pieces:
        if piece.id is not None:
            calls.append(ToolCall(piece.id, CalledFunction("", piece.name or "")))
        calls[piece.index].function.arguments += piece.arguments
    return calls


def tool_call_deltas(pieces: Sequence[CallPiece]) -> list[ToolCallDelta]:
    """What is new in calls; pieces of one call's arguments are one."""
    deltas: list[ToolCallDelta] = []
    for piece in pieces:
        if piece.id is not None:
            function = CalledFunction(piece.arguments, piece.name or "")
            deltas.append(ToolCallDelta(piece.index, function, piece.id, "function"))
        elif deltas and deltas[-1].index == piece.index:
            deltas[-1].function.arguments += piece.arguments
        else:
            deltas.append(ToolCallDelta(piece.index, CalledFunction(piece.arguments)))
    return deltas
