"""Servers with OpenAI's API over HTTP: nothing is asked of them but a base URL.

    paged-conformance server http://127.0.0.1:8000/v1

**What is asked.** `GET /models` names a model, unless the option `model` does; the option `key`, or
$OPENAI_API_KEY, is sent as a bearer token. At the start a few small requests find out what the
server can do (`CAPABILITIES`); what needs more is skipped. Any model will do, however small: its
answers are compared with each other, never with a text. All of it is sent by up to
`clients` (6) clients at once, with `patience` seconds for each next byte: 20, or what a server as
slow as this one takes for 200 tokens in such company.

**What must hold** is what OpenAI's reference of the API says, and vLLM's documentation of fields
that OpenAI's does not have, where a server knows these. Beyond that:

- A request may be refused at any time: with a status from 400 to 499 and JSON that says why, or 429
  or 503 if the server is busy, or 501. A refused request in order is not counted. Another status
  from 500 on is a failure, and so is a stream with an error of the server's own.
- Fields that a server does not know may be ignored or refused. Values out of range may be refused,
  or clamped and answered.
- Greedy answers (`temperature` 0) may part at a tie, since sums may be taken in another order: both
  tokens' log-probabilities must then be within 0.25 of each other, and so must those of equal
  tokens. How near they were is in the report's numbers.
- The server answers within this patience, whoever else is there: a request that waits longer, and
  does so again after its program may have been compiled, has been starved. An example whose
  requests take too long together is not counted. So nobody else should use the server, and no proxy
  should stand before it that has limits of its own.
- `offset`s of tokens are compared with the first one's: whether they count the prompt is open.
- Beside `return_token_ids` an echo may have the prompt's ids in the place of its text.
- What a stop token leaves in the text, and whether the token itself is told, is open.

What a server was last asked before it ended is the failure. It is started again by the command of
the option `start`; without one all that comes after is not counted.
"""

from paged_conformance.properties import Property
from paged_conformance.server import bodies, crowds, ends, greedy, odd, schemas, streams
from paged_conformance.server.measured import numbers
from paged_conformance.server.probe import connect
from paged_conformance.server.speed import twice

CAPABILITIES: dict[str, str] = {
    "completions": "POST /completions completes a text.",
    "chat": "POST /chat/completions answers a conversation.",
    "streams": "Completions are streamed.",
    "chat-streams": "Chats are streamed.",
    "any-streams": "Completions or chats are streamed.",
    "stream-usage": "A completion's stream ends with its usage if asked to.",
    "chat-stream-usage": "A chat's stream ends with its usage if asked to.",
    "logprobs": "Completions tell log-probabilities, also of other tokens.",
    "chat-logprobs": "Chats tell log-probabilities, also of other tokens.",
    "any-logprobs": "Completions or chats tell log-probabilities, also of other tokens.",
    "n": "A completion may have several choices.",
    "chat-n": "A chat may have several choices.",
    "any-n": "Completions or chats may have several choices.",
    "echo": "A completion may repeat its prompt.",
    "seeds": "`seed` is known.",
    "stop-token-ids": "`stop_token_ids` is known.",
    "min-tokens": "`min_tokens` is known.",
    "include-stop": "`include_stop_str_in_output` is known.",
    "ignore-eos": "`ignore_eos` is known.",
    "token-ids": "`return_token_ids` is known.",
    "prompt-lists": "A completion takes a list of prompts.",
    "token-prompts": "A completion takes token ids as its prompt.",
    "tools": "A chat calls a tool that is named.",
    "json-schema": "A chat follows a JSON schema.",
    "structured-outputs": "`structured_outputs` guides a completion.",
    "guides": "Some way to guide an answer by a schema is known.",
    "responses": "POST /responses answers.",
    "embeddings": "POST /embeddings answers.",
    "health": "GET /health, beside the base URL's path, says 200.",
    "metrics": "GET /metrics has vLLM's gauges of requests.",
}
_ALL = (
    *greedy.PROPERTIES,
    *streams.PROPERTIES,
    *ends.PROPERTIES,
    *bodies.PROPERTIES,
    *odd.PROPERTIES,
    *schemas.PROPERTIES,
    *crowds.PROPERTIES,
)
PROPERTIES: tuple[Property, ...] = tuple(twice(prop) for prop in _ALL)

__all__ = ["CAPABILITIES", "PROPERTIES", "connect", "numbers"]
