"""A log line for each request: its id and parameters, and its prompt only if asked for.

`OutputLog` writes one for each output that has ended.

`CLIENT_REQUEST` is the client's request that an asyncio task serves. Log lines and traces name it.
"""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from jax_engine.checks import shown
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.lora.request import LoRARequest
from jax_engine.outputs import RequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import RequestOutputKind, SamplingParams
from jax_engine.serving.messages import params_fields


@dataclass(frozen=True)
class ClientRequest:
    """
    Attributes:
        request_id: the id of the answer that the client is given.
        headers: headers of the client's request.
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
        name = _called(request_id)
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


class OutputLog:
    """Called with the outputs of one request as `AsyncLLM` yields them.

    Args:
        request_id: The engine's name of the request, for one that came by no HTTP.
        params: They say whether an output is the whole so far, or what is new.
        max_shown: Characters of an output, or its token ids, to be shown; 0: none.
    """

    def __init__(self, request_id: str, params: SamplingParams, max_shown: int) -> None:
        self._name = _called(request_id)
        self._max_shown = max_shown
        self._adds = params.output_kind is RequestOutputKind.DELTA
        self._as_text = params.detokenize
        self._shown: dict[int, Any] = {}
        self._num_tokens: dict[int, int] = {}
        self._ended: set[int] = set()

    def __call__(self, output: RequestOutput) -> None:
        """Writes a line for each output that has ended with this."""
        for one in output.outputs:
            if one.index in self._ended:
                continue
            said: Any = one.text if self._as_text else list(one.token_ids)
            num_tokens = len(one.token_ids)
            if self._adds:
                said = self._shown.get(one.index, said[:0]) + said
                num_tokens += self._num_tokens.get(one.index, 0)
            self._shown[one.index] = said[: self._max_shown]
            self._num_tokens[one.index] = num_tokens
            if one.finish_reason is not None:
                self._ended.add(one.index)
                self._write(one.index, one.finish_reason)

    def _write(self, index: int, reason: str) -> None:
        shown_output = f", output: {self._shown[index]!r}" if self._max_shown else ""
        logger.info(
            "Generated response %s: index: %d, tokens: %d, finish_reason: %s%s",
            shown(self._name)[1:-1],
            index,
            self._num_tokens[index],
            reason,
            shown_output,
            extra={"request_id": self._name},
        )


def _called(request_id: str) -> str:
    """What the client calls a request of this name."""
    origin = CLIENT_REQUEST.get()
    return request_id if origin is None else origin.request_id


def _params(params: SamplingParams | PoolingParams) -> str:
    """Those that have another value than the default."""
    text = ", ".join(f"{name}={value!r}" for name, value in params_fields(params).items())
    text = f"{type(params).__name__}({text})"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
