"""What all endpoints share: the engine, the names of its model, and limits."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from starlette.requests import Request as HttpRequest

from jax_engine.checks import shown
from jax_engine.serving.async_llm import AsyncLLM
from jax_engine.serving.openai.errors import ApiError
from jax_engine.serving.openai.request_fields import Request
from jax_engine.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """
    Attributes:
        names: what clients may call the model; the first one is its name in answers.
        chat_template: Jinja, in place of the model's own.
        api_keys: a request must have one of them; none: no key is asked for.
        max_body_bytes: longer requests are refused.
        max_waiting: how many requests may wait behind the `max_num_seqs` that run; None: any.
    """

    names: tuple[str, ...]
    chat_template: str | None = None
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: int = 32 << 20
    max_waiting: int | None = None


@dataclass(frozen=True)
class Service:
    """The engine and its settings, as endpoints use them."""

    llm: AsyncLLM
    settings: ServerSettings
    created: int = field(default_factory=lambda: int(time.time()))
    defaults: dict[str, Any] = field(init=False)
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        object.__setattr__(self, "defaults", self.llm.default_sampling())

    @property
    def name(self) -> str:
        """The model's name in answers."""
        return self.settings.names[0]

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises InvalidRequestError if the engine has none."""
        return self.llm.text_tokenizer()

    @property
    def can_chat(self) -> bool:
        """Whether there is a template that makes a conversation a prompt."""
        if self.settings.chat_template is not None:
            return True
        return not self.llm.config.skip_tokenizer_init and self.tokenizer.chat.has_template

    def engine_id(self, answer: str, prompt: int = 0) -> str:
        """An id for the engine: the answer's, which clients may choose, and what makes it unique.

        Args:
            prompt: which of the answer's prompts it is.
        """
        return f"{answer}/{prompt}#{next(self._numbers)}"

    def check_model(self, request: Request) -> None:
        """
        Raises:
            ApiError: the request names another model.
        """
        if request.model is not None and request.model not in self.settings.names:
            raise no_model(request.model)

    def check_queue(self) -> None:
        """
        Raises:
            ApiError: too many requests wait already.
        """
        limit = self.settings.max_waiting
        waiting = self.llm.num_unfinished_requests - self.llm.config.max_num_seqs
        if limit is not None and waiting >= limit:
            message = f"{max(waiting, 0)} requests wait already, and at most {limit} may: try later"
            raise ApiError(503, message, code="queue_full", headers={"Retry-After": "1"})


def no_model(name: str) -> ApiError:
    """The error of a model that is not served."""
    message = f"the model {shown(name)} does not exist"
    return ApiError(404, message, param="model", code="model_not_found")


def answer_id(prefix: str, request_id: str | None, http: HttpRequest) -> str:
    """An id for an answer: from the request, its header X-Request-Id, or a new one."""
    given = request_id or http.headers.get("x-request-id")
    return f"{prefix}-{given or uuid.uuid4().hex}"
