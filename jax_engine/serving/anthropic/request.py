"""A request of Anthropic's API."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.request_fields import (
    MESSAGES_HARMLESS,
    Body,
    Fields,
    Messages,
    Tools,
)
from jax_engine.serving.openai.requests import Effort
from jax_engine.serving.openai.sampling_fields import Words


class Thinking(Fields):
    """Whether the model is to think, and whether its thoughts are shown.

    Attributes:
        budget_tokens: checked, but no limit: a model's template knows no budget.
    """

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Fields):
    """The form of the answer."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Fields):
    """How the answer is to be written."""

    effort: Effort | None = None
    format: OutputFormat | None = None


class CountRequest(Body):
    """`/v1/messages/count_tokens`."""

    harmless: ClassVar[frozenset[str]] = MESSAGES_HARMLESS
    model: str
    messages: Messages
    system: str | list[dict[str, Any]] | None = None
    tools: Tools | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None


class MessagesRequest(CountRequest):
    """`/v1/messages`."""

    max_tokens: int
    stop_sequences: Words | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stream: bool = False

    def engine_names(self) -> dict[str, str]:
        """As `Body.engine_names`."""
        names = {"stop": "stop_sequences"}
        if self.output_config is not None and self.output_config.format is not None:
            names["structured_outputs"] = "output_config.format.schema"
        return names

    def check(self) -> None:
        """
        Raises:
            ApiError: the numbers of tokens contradict each other.
        """
        if self.max_tokens < 1:
            raise invalid("max_tokens", f"max_tokens must be at least 1, got {self.max_tokens}")
        budget = None if self.thinking is None else self.thinking.budget_tokens
        if budget is not None and not 1 <= budget < self.max_tokens:
            name = "thinking.budget_tokens"
            raise invalid(name, f"{name} must be at least 1 and below max_tokens, got {budget}")
