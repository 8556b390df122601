"""What a plugin of parsers imports: vLLM's base classes, registries, messages and request.

A plugin is a file that registers a class under a name, which `--tool-call-parser` or
`--reasoning-parser` may then be. `jax_engine.compat.vllm` has these classes where vLLM has them.
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from jax_engine.checks import shown
from jax_engine.config.reasoning_markers import REASONING_MARKERS
from jax_engine.errors import ConfigError
from jax_engine.serving.parsers.tool_formats import TOOL_FORMATS
from jax_engine.serving.parsers.tool_parser import call_id


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")


class FunctionCall(_Message):
    """A whole call."""

    name: str
    arguments: str


class ToolCall(_Message):
    """A whole call with its id."""

    id: str = Field(default_factory=call_id)
    type: Literal["function"] = "function"
    function: FunctionCall


class ExtractedToolCallInformation(_Message):
    """What `extract_tool_calls` finds in a whole text."""

    tools_called: bool
    tool_calls: list[ToolCall]
    content: str | None = None


class DeltaFunctionCall(_Message):
    """What is new in a call."""

    name: str | None = None
    arguments: str | None = None


class DeltaToolCall(_Message):
    """What is new in a call, with its number."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: DeltaFunctionCall | None = None


class DeltaMessage(_Message):
    """What is new in a turn; `reasoning_content` is the older name of `reasoning`."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[DeltaToolCall] = Field(default_factory=list)


class FunctionDefinition(_Message):
    """A tool that a request offers."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatCompletionToolsParam(_Message):
    """The same, as requests write it."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


class ChatCompletionRequest(_Message):
    """A request, as far as parsers read one.

    Attributes:
        skip_special_tokens: a parser's `adjust_request` sets it to False, to see them in texts.
    """

    messages: list[Any] = Field(default_factory=list)
    model: str | None = None
    tools: list[ChatCompletionToolsParam] | None = None
    tool_choice: Any = None
    stream: bool = False
    skip_special_tokens: bool = True
    include_reasoning: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


ResponsesRequest = ChatCompletionRequest  # the parsers see that of a chat, whatever was asked


class _Parser:
    """A parser of one turn.

    Attributes:
        model_tokenizer: that of transformers.
    """

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        self.model_tokenizer = tokenizer

    @cached_property
    def vocab(self) -> dict[str, int]:
        """The ids of all tokens."""
        found: dict[str, int] = self.model_tokenizer.get_vocab()
        return found


class ToolParser(_Parser):
    """The base of a plugin's parsers of calls. A subclass has the last two methods."""

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer)
        self.prev_tool_call_arr: list[dict[str, Any]] = []
        self.current_tool_id = -1
        self.current_tool_name_sent = False
        self.streamed_args_for_tool: list[str] = []

    def adjust_request(self, request: ChatCompletionRequest) -> ChatCompletionRequest:
        """May ask for special tokens in the text."""
        return request

    def extract_tool_calls(
        self, model_output: str, request: ChatCompletionRequest
    ) -> ExtractedToolCallInformation:
        """The calls in a whole text."""
        raise NotImplementedError

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: ChatCompletionRequest,
    ) -> DeltaMessage | None:
        """What is certain of what is new; None: nothing yet."""
        raise NotImplementedError


class ReasoningParser(_Parser):
    """The base of a plugin's parsers of reasoning. A subclass has `extract_reasoning` and the same
    with `_streaming`, or vLLM's older `extract_reasoning_content`.
    """

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Whether reasoning has ended in these tokens: then what follows is content."""
        return False

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        """The tokens of the content."""
        return list(input_ids)

    def extract_reasoning(
        self, model_output: str, request: ChatCompletionRequest
    ) -> tuple[str | None, str | None]:
        """Reasoning and content of a whole text."""
        raise NotImplementedError

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> DeltaMessage | None:
        """What is certain of what is new; None: nothing yet."""
        raise NotImplementedError


class BaseThinkingReasoningParser(ReasoningParser):
    """Reasoning up to a token of its own. A subclass has `start_token` and `end_token`."""

    start_token: str
    end_token: str

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, *args, **kwargs)
        self.start_token_id = self.vocab.get(self.start_token)
        self.end_token_id = self.vocab.get(self.end_token)
        if self.start_token_id is None or self.end_token_id is None:
            names = f"{shown(self.start_token)} and {shown(self.end_token)}"
            raise RuntimeError(f"{names} must be tokens of the model")

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Whether the last marker in these tokens is the end."""
        marks = (self.start_token_id, self.end_token_id)
        last = next((one for one in reversed(input_ids) if one in marks), None)
        return last == self.end_token_id

    def extract_reasoning(
        self, model_output: str, request: ChatCompletionRequest
    ) -> tuple[str | None, str | None]:
        """Without an end, all is reasoning."""
        reasoning, content = self._parted(model_output, "")
        return reasoning, content or None

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> DeltaMessage | None:
        """As `ReasoningParser.extract_reasoning_streaming`."""
        if self.end_token in previous_text:
            return DeltaMessage(content=delta_text)
        said, _ = self._parted(previous_text, self.end_token)
        reasoning, content = self._parted(current_text, self.end_token)
        return DeltaMessage(reasoning=reasoning[len(said) :], content=content or None)

    def _parted(self, text: str, held: str) -> tuple[str, str]:
        """Reasoning and content. A text may end with a part of `held`, which is neither yet."""
        if held and self.start_token.startswith(text):
            return "", ""
        text = text.removeprefix(self.start_token)
        reasoning, end, content = text.partition(self.end_token)
        parts = range(len(held) - 1, 0, -1)
        partial = 0 if end else next((n for n in parts if text.endswith(held[:n])), 0)
        return reasoning[: len(reasoning) - partial], content


def markers_of(parser: Any) -> tuple[str, str]:
    """What a parser of reasoning, or its class, says of its markers; "": nothing."""
    found = [
        next((one for name in names if isinstance(one := getattr(parser, name, None), str)), "")
        for names in (("reasoning_start_str", "start_token"), ("reasoning_end_str", "end_token"))
    ]
    return found[0], found[1]


class ParserRegistry[P: _Parser]:
    """The parsers of plugins, by name.

    Args:
        what: the kind, in messages.
        base: the base class, whose own methods do not count.
        methods: names of methods; a class must have one of each row.
        own: names that are taken.

    Attributes:
        parsers: the classes that were registered.
    """

    def __init__(
        self,
        what: str,
        base: type[P],
        methods: Sequence[Sequence[str]],
        own: Collection[str],
    ) -> None:
        self._what, self._base, self._methods, self._own = what, base, methods, own
        self.parsers: dict[str, type[P]] = {}

    def register_module(
        self,
        name: str | Sequence[str] | None = None,
        force: bool = True,
        module: type[P] | None = None,
    ) -> Any:
        """Registers a class, as a decorator or at once.

        Args:
            name: one or several; None: that of the class.
            force: whether a name of another plugin is taken over.

        Raises:
            ConfigError: the class lacks a method, or the name is not free.
        """
        if module is not None:
            return self._register(module, name, force=force)

        def decorate(cls: type[P]) -> type[P]:
            return self._register(cls, name, force=force)

        return decorate

    def _register(self, cls: type[P], name: str | Sequence[str] | None, *, force: bool) -> type[P]:
        for either in self._methods:
            if not any(self._has(cls, one) for one in either):
                raise ConfigError(
                    f"{self._what} {shown(getattr(cls, '__name__', cls))} has no method "
                    f"{' or '.join(either)}"
                )
        names = [cls.__name__] if name is None else [name] if isinstance(name, str) else list(name)
        for one in names:
            if not isinstance(one, str) or not one:
                raise ConfigError(f"{self._what}: a name must be a text, got {shown(one)}")
            if one in self._own or one == "none":
                raise ConfigError(
                    f"{self._what} {shown(one)} is one of jax-engine's own: register yours under "
                    "another name"
                )
            if one in self.parsers and not force:
                raise ConfigError(f"{self._what} {shown(one)} is registered already")
            self.parsers[one] = cls
        return cls

    def _has(self, cls: type[P], method: str) -> bool:
        found = getattr(cls, method, None)
        return callable(found) and found is not getattr(self._base, method, None)

    def get(self, name: str) -> type[P]:
        """The class of a name. Raises KeyError."""
        return self.parsers[name]

    get_tool_parser = get_reasoning_parser = get

    def list_registered(self) -> list[str]:
        """All names that are known, in order."""
        return sorted({*self.parsers, *self._own})

    def check(self, flag: str, name: str | None) -> None:
        """
        Raises:
            ConfigError: nobody has registered this name.
        """
        if name is not None and name not in (*self.list_registered(), "none"):
            known = ", ".join([*self.list_registered(), "none"])
            raise ConfigError(f"{flag} must be one of {known}, got {shown(name)}")


ToolParserManager = ParserRegistry(
    "tool parser",
    ToolParser,
    [["extract_tool_calls"], ["extract_tool_calls_streaming"]],
    TOOL_FORMATS,
)
ReasoningParserManager = ParserRegistry(
    "reasoning parser",
    ReasoningParser,
    [
        ["extract_reasoning", "extract_reasoning_content"],
        ["extract_reasoning_streaming", "extract_reasoning_content_streaming"],
    ],
    REASONING_MARKERS,
)
