"""The OpenAI-compatible server, in the API's process: HTTP in, `AsyncLLM`'s outputs out.

server.py              the port, signals, and what ends the server
app.py                 the endpoints
document.py            parts of the OpenAPI document
guards.py              what is refused before an endpoint sees it: keys, large bodies, a full queue
errors.py              errors in OpenAI's shape
service.py             what all endpoints share: the engine, names, limits
request_fields.py      fields of requests, checked by name
sampling_fields.py     those that become `SamplingParams`
requests.py            the requests of each endpoint
responses.py           what they are answered with
prompts.py             prompts of requests
running.py             runs requests side by side, for as long as their client is there
events.py              server-sent events
completions.py         /v1/completions
chat.py                /v1/chat/completions
responses_api/         /v1/responses
../anthropic/          /v1/messages
conversation.py        messages of a chat, from the pieces that these two get
parts.py               items, blocks and tools, each told by its type
blocks.py              a turn as stretches of reasoning, text and calls
thought.py             how much of a turn was reasoning
logprobs.py            log-probabilities, as both endpoints write them
embeddings.py          /v1/embeddings, /pooling, /classify
scores.py              /score, /rerank
pooled.py              what these share
tokens.py              /tokenize, /detokenize
metrics.py             /metrics
stats_log.py           a line every few seconds about what the engine does
state.py               /state: what the engine does at this moment
page.py                /: the page that shows it
"""
