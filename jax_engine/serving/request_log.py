"""A log line for each request: its id and parameters, and its prompt only if asked for.

`CLIENT_REQUEST` is the client's request that an asyncio task serves. Log lines and traces name it.
"""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from jax_engine.checks import shown
from jax_engine.engine.prompts import Prompt
from jax_engine.lora.request import LoRARequest
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import SamplingParams
from jax_engine.serving.messages import params_fields


@dataclass(frozen=True)
class ClientRequest:
    """
    Attributes:
        request_id: the id of the answer that the client is given.
        headers: of the client's request.
    """

    request_id: str
    headers: Mapping[str, str] = field(default_factory=dict)


CLIENT_REQUEST: ContextVar[ClientRequest | None] = ContextVar("origin", default=None)


logger = logging.getLogger("jax_engine")
MAX_SHOWN = 1000  # characters of a line that a client decides


class RequestLog:
    """Called with each request that `AsyncLLM` sends to the engine.

    Args:
        max_prompt: characters of the prompt, or its token ids, to be shown; 0: none.
    """

    def __init__(self, max_prompt: int = 0) -> None:
        self._max_prompt = max_prompt

    def __call__(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | PoolingParams,
        lora: LoRARequest | None = None,
    ) -> None:
        """Writes the line."""
        origin = CLIENT_REQUEST.get()
        name = request_id if origin is None else origin.request_id
        logger.info(
            "Received request %s: %sprompt tokens: %d, params: %s%s",
            shown(name)[1:-1],
            self._prompt(prompt),
            len(prompt.token_ids),
            _params(params),
            "" if lora is None else f", lora_request: {shown(lora.lora_name)}",
            extra={"request_id": name},
        )

    def _prompt(self, prompt: Prompt) -> str:
        if not self._max_prompt:
            return ""
        text: Any = prompt.token_ids if prompt.text is None else prompt.text
        return f"prompt: {text[: self._max_prompt]!r}, "


def _params(params: SamplingParams | PoolingParams) -> str:
    """Those that have another value than the default."""
    text = ", ".join(f"{name}={value!r}" for name, value in params_fields(params).items())
    text = f"{type(params).__name__}({text})"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
