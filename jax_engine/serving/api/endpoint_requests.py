"""The requests of OpenAI's endpoints, and of those that vLLM adds.

A request of `/v1/responses` or `/v1/messages` becomes a `ChatRequest`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr

from jax_engine.pooling_params import PoolingTask
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.request_fields import MAX_MESSAGES, Fields, Messages, Request, Tools
from jax_engine.serving.api.sampling_fields import SamplingRequest

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class CompletionRequest(SamplingRequest):
    """`/v1/completions`.

    Attributes:
        prompt: text, token ids, or a list of either.
        prompt_embeds: a tensor in place of a prompt, as base64 of what `torch.save` writes, or a
            list of these. They come before `prompt`, if there is one, too.
        max_tokens: None: the model's default, or 16. 0 only with `echo`.
    """

    prompt: Any = None
    prompt_embeds: Any = None
    echo: bool = False
    logprobs: int | None = None
    max_tokens: int | None = None
    suffix: str | None = None
    add_special_tokens: bool = True

    def engine_names(self) -> dict[str, str]:
        """As `Body.engine_names`."""
        return super().engine_names() | {"prompt_token_ids": "prompt"}


class Chat(Fields):
    """How a conversation becomes a prompt.

    Attributes:
        documents: an option of the template.
        chat_template: Jinja, in place of the model's, if the server trusts its clients.
    """

    messages: Messages
    tools: Tools | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    reasoning_effort: Effort | None = None


class TextPart(Fields):
    """A part of a content that must be text."""

    type: Literal["text"]
    text: str


class Prediction(Fields):
    """What an answer is expected to repeat."""

    type: Literal["content"]
    content: str | Annotated[list[TextPart], Field(max_length=MAX_MESSAGES)]

    @property
    def text(self) -> str:
        """Its parts' texts, one behind the other."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatRequest(Chat, SamplingRequest):
    """`/v1/chat/completions`.

    Attributes:
        prediction: a text that guesses come from, if the engine speculates.
        max_tokens, max_completion_tokens: None: as many as fit.
        tool_choice: None: "auto" if there are tools.
        parallel_tool_calls: whether a turn may call several tools.
        include_reasoning: whether the answer has what the model reasoned.
        echo: whether a last message of the assistant begins the answer's content.
    """

    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    include_reasoning: bool = True
    prediction: Prediction | None = None
    modalities: list[Literal["text"]] | None = None
    echo: bool = False
    logprobs: bool = False
    top_logprobs: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    _schemas: list[str] = PrivateAttr(default_factory=list)

    def engine_names(self) -> dict[str, str]:
        """As `Body.engine_names`."""
        names = super().engine_names() | {"logprobs": "top_logprobs"}
        if self.max_completion_tokens is not None:
            names["max_tokens"] = "max_completion_tokens"
        return names

    @property
    def max_output(self) -> int | None:
        """The tokens that the answer may have; None: as many as fit."""
        newer = self.max_completion_tokens
        return self.max_tokens if newer is None else newer

    @property
    def schemas(self) -> list[str]:
        """What the client calls the schema of each tool; empty: as this request does."""
        return self._schemas

    def with_schemas(self, names: list[str]) -> Self:
        """This request, with other names for its tools' schemas in errors."""
        self._schemas = names
        return self


class PooledRequest(Request):
    """What requests have in common whose answers come from a prompt's hidden states.

    Attributes:
        truncation_side: which end of too long a prompt is cut; None: the left one.
        add_special_tokens: None: of a text, not of a conversation, which its template writes whole.
        use_activation, activation, softmax: whether scores are probabilities, and vectors have
            length 1; the first that is given decides. vLLM's versions name it differently.
    """

    truncate_prompt_tokens: int | None = None
    truncation_side: Literal["left", "right"] | None = None
    padding: Literal["do_not_pad"] | None = None
    add_special_tokens: bool | None = None
    cache_salt: str | None = None
    use_activation: bool | None = None
    activation: bool | None = None
    softmax: bool | None = None
    priority: int = 0
    timeout: float | None = None
    request_id: str | None = None

    @property
    def is_activated(self) -> bool | None:
        """What the request says of activation; None: nothing."""
        given = (self.use_activation, self.activation, self.softmax)
        return next((one for one in given if one is not None), None)


class InputRequest(PooledRequest):
    """One of these with `input`, or with a conversation in its place.

    Attributes:
        input: text, token ids, or a list of either.
        messages: a conversation, with options of `Chat`.
    """

    input: Any = None
    messages: Messages | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = False
    continue_final_message: bool = False

    def engine_names(self) -> dict[str, str]:
        """As `Body.engine_names`."""
        return {"prompt": "input", "prompt_token_ids": "input"}

    @property
    def chat(self) -> Chat | None:
        """The conversation; None: there is `input`."""
        if self.messages is None:
            return None
        return Chat(
            messages=self.messages,
            chat_template=self.chat_template,
            chat_template_kwargs=self.chat_template_kwargs,
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            add_special_tokens=bool(self.add_special_tokens),
        )


class VectorRequest(InputRequest):
    """One of these whose answer may be vectors.

    Attributes:
        encoding_format: "bytes" answers with all vectors' numbers, one vector after another, and
            describes them in the header `metadata`; "bytes_only" without that header.
        embed_dtype, endianness: how base64 and bytes write a number.
    """

    encoding_format: Literal["float", "base64", "bytes", "bytes_only"] = "float"
    embed_dtype: Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"] = "float32"
    endianness: Literal["native", "little", "big"] = "native"
    dimensions: int | None = None


class EmbeddingRequest(VectorRequest):
    """`/v1/embeddings`."""


class PoolingRequest(VectorRequest):
    """`/pooling`.

    Attributes:
        task: None: what the model was made for.
    """

    task: PoolingTask | None = None


class ClassifyRequest(InputRequest):
    """`/classify`."""


Texts = str | list[str]
# What vLLM's versions call the two sides of a pair.
SIDES = (
    ("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents"), ("queries", "items"),
)  # fmt: skip


class PairRequest(PooledRequest):
    """One of these about pairs of texts.

    Attributes:
        max_tokens_per_query, max_tokens_per_doc: how many tokens are kept of a text of the left or
            the right side; 0 or None: all.
    """

    max_tokens_per_query: int | None = None
    max_tokens_per_doc: int | None = None


class ScoreRequest(PairRequest):
    """`/score`: two sides, by one of the names that vLLM's versions have for them."""

    text_1: Texts | None = None
    text_2: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None

    @property
    def sides(self) -> tuple[str, str]:
        """The names of the two fields that are given.

        Raises:
            ApiError: one is missing, or there are more.
        """
        given = {name for pair in SIDES for name in pair if getattr(self, name) is not None}
        for pair in SIDES:
            if given == set(pair):
                return pair
        near = max(SIDES, key=lambda pair: len(given & set(pair)))
        missing = [name for name in near if name not in given]
        if missing:
            raise invalid(missing[0], f"{missing[0]} is missing")
        other = min(given - set(near))
        raise invalid(other, f"{other} must not be given beside {near[0]} and {near[1]}")


class RerankRequest(PairRequest):
    """`/rerank`.

    Attributes:
        top_n: how many of the documents are answered; 0: all.
    """

    query: str
    documents: list[str]
    top_n: int = 0


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
