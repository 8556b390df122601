"""The requests of each endpoint."""

from typing import Any, Literal

from jax_engine.serving.openai.request_fields import Fields, Request
from jax_engine.serving.openai.sampling_fields import SamplingRequest


class CompletionRequest(SamplingRequest):
    """`/v1/completions`.

    Attributes:
        prompt: text, token ids, or a list of either.
        max_tokens: None: the model's default, or 16. 0 only with `echo`.
    """

    prompt: Any
    best_of: int | None = None
    echo: bool = False
    logprobs: int | None = None
    max_tokens: int | None = None
    suffix: str | None = None
    add_special_tokens: bool = True


class Chat(Fields):
    """How a conversation becomes a prompt."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class ChatRequest(Chat, SamplingRequest):
    """`/v1/chat/completions`.

    Attributes:
        max_tokens, max_completion_tokens: None: as many as fit.
    """

    tool_choice: str | dict[str, Any] | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    best_of: int | None = None


class EmbeddingRequest(Request):
    """`/v1/embeddings`."""

    input: Any
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool = True
    priority: int = 0
    timeout: float | None = None
    request_id: str | None = None


class TokenizeTextRequest(Request):
    """`/tokenize` of a text."""

    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool = False


class TokenizeChatRequest(Chat, Request):
    """`/tokenize` of a conversation."""

    return_token_strs: bool = False


class DetokenizeRequest(Request):
    """`/detokenize`."""

    tokens: list[int]
