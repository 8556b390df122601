"""A request of OpenAI's Responses API."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from jax_engine.checks import shown
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.request_fields import RESPONSES_HARMLESS, Fields, Messages, Tools
from jax_engine.serving.openai.requests import Effort
from jax_engine.serving.openai.sampling_fields import SamplingFields

LOGPROBS = "message.output_text.logprobs"
# What an answer can include. But for log-probabilities it is nothing here: no tool is hosted, and
# reasoning is not encrypted.
INCLUDABLE = (
    LOGPROBS,
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
)
_NEEDS_STORE = {
    "previous_response_id": "send the whole conversation as input",
    "conversation": "send the whole conversation as input",
    "prompt": "send its text as instructions and input",
    "context_management": "send a shorter input",
}


class TextFormat(Fields):
    """The form of the answer: of `response_format`, without the level `json_schema`."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "output"
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class Text(Fields):
    """How the answer is to be written."""

    harmless: ClassVar[frozenset[str]] = frozenset({"verbosity"})
    format: TextFormat | None = None


class Reasoning(Fields):
    """How much the model is to think. It is shown whole, so no summary of it is written."""

    harmless: ClassVar[frozenset[str]] = frozenset({"summary", "generate_summary"})
    effort: Effort | None = None


class ResponseStreamOptions(Fields):
    """Padding against eavesdroppers is not written."""

    harmless: ClassVar[frozenset[str]] = frozenset({"include_obfuscation"})


class ResponsesRequest(SamplingFields):
    """`/v1/responses`.

    Attributes:
        input: text, or a list of items.
        max_output_tokens: None: as many as fit.
        truncation: "auto": of too long a prompt the end is kept.
        metadata, user, prompt_cache_key, safety_identifier: only written into the answer.
    """

    harmless: ClassVar[frozenset[str]] = RESPONSES_HARMLESS
    input: str | Messages
    instructions: str | None = None
    tools: Tools | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    chat_template_kwargs: dict[str, Any] | None = None
    stream_options: ResponseStreamOptions | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    background: bool = False
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    context_management: Any = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer is to have log-probabilities."""
        return LOGPROBS in (self.include or ())

    def engine_names(self) -> dict[str, str]:
        """As `Body.engine_names`."""
        names = super().engine_names()
        if self.text is not None and self.text.format is not None:
            names.setdefault("structured_outputs", "text.format.schema")
        return names | {"logprobs": "top_logprobs", "max_tokens": "max_output_tokens"}

    def check(self) -> None:
        """
        Raises:
            ApiError: a field asks for what this server does not do, or goes with no other.
        """
        for name, hint in _NEEDS_STORE.items():
            if getattr(self, name) is not None:
                raise invalid(name, f"{name} is not supported: nothing is stored here; {hint}")
        if self.background:
            raise invalid(
                "background", "background is not supported: nothing is stored here; use stream"
            )
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            message = f"max_output_tokens must be at least 1, got {self.max_output_tokens}"
            raise invalid("max_output_tokens", message)
        for one in self.include or ():
            if one not in INCLUDABLE:
                known = ", ".join(INCLUDABLE)
                raise invalid("include", f"include must hold some of {known}, got {shown(one)}")
        if self.top_logprobs and not self.wants_logprobs:
            message = f'top_logprobs must only be given with include: ["{LOGPROBS}"]'
            raise invalid("top_logprobs", message)
