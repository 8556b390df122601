"""`/tokenize`, `/detokenize` and `/tokenizer_info`."""

from msgspec import Struct
from starlette.responses import Response

from jax_engine.checks import shown
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.endpoint_requests import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeTextRequest,
)
from jax_engine.serving.api.endpoint_responses import json_response
from jax_engine.serving.api.request_prompts import chat_prompt
from jax_engine.serving.api.service import Service


class Tokens(Struct):
    """The answer of `/tokenize`."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str | None] | None = None


class Text(Struct):
    """The answer of `/detokenize`."""

    prompt: str


async def tokenize(
    service: Service, request: TokenizeTextRequest | TokenizeChatRequest
) -> Response:
    """The token ids of a text, or of a conversation."""
    service.check_model(request)
    if isinstance(request, TokenizeTextRequest):
        special = request.add_special_tokens
        encode = service.encoder.ids
        ids = await encode(request.prompt, add_special_tokens=special, any_length=True)
    else:
        ids = (await chat_prompt(service, request, request, any_length=True))["prompt_token_ids"]
    answer = Tokens(len(ids), service.llm.max_model_len, ids)
    if request.return_token_strs:
        backend = service.tokenizer.backend
        answer.token_strs = [backend.id_to_token(one) for one in ids]
    return json_response(answer)


async def detokenize(service: Service, request: DetokenizeRequest) -> Response:
    """The text of token ids, special tokens included."""
    service.check_model(request)
    tokenizer = service.tokenizer
    for at, token in enumerate(request.tokens):
        if not 0 <= token < 2**31:
            raise invalid("tokens", f"tokens[{at}] must be a token id, got {shown(token)}")
    return json_response(Text(tokenizer.decode(request.tokens, skip_special_tokens=False)))


def tokenizer_info(service: Service) -> Response:
    """What a client needs to know that writes prompts itself."""
    chat = service.tokenizer.chat
    found: dict[str, int | str | None] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": service.llm.max_model_len,
        "bos_token": None,
        "eos_token": None,
        "chat_template": service.settings.chat_template or chat.template,
    }
    return json_response(found | chat.special_tokens)
