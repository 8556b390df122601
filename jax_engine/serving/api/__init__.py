"""The HTTP API, in the API's process: HTTP in, `AsyncLLM`'s outputs out.

server.py              the port, TLS, signals, and what ends the server
http_protocol.py       HTTP/1.1, with limits to a head's size and time
app.py                 the paths, and the endpoint of each
middleware.py          what happens to every request before its endpoint: keys, limits, ids, paths
api_errors.py          errors in OpenAI's and in Anthropic's shape
service.py             what all endpoints share: the engine, names, limits
request_fields.py      the base of all request bodies: fields checked by name
sampling_fields.py     the fields that become `SamplingParams`
endpoint_requests.py   the request of each endpoint
endpoint_responses.py  the answers of endpoints that generate, and their usage of tokens
response_logprobs.py   log-probabilities in these answers
streaming.py           server-sent events, and work that ends with its client's connection
request_prompts.py     the prompt of a request: text, token ids or a conversation
turn_parsing.py        how the turns of a request are parsed, and the grammar that constrains them
chat_generation.py     a chat under way, which each endpoint that chats writes in its own form
chat_messages.py       messages of a chat, from the pieces that /v1/responses and /v1/messages get
content_blocks.py      a turn as blocks of reasoning, text and calls, which these two write
web_page.py            /: the page that shows the engine at work; /state: what it shows
openai/                OpenAI's endpoints, and vLLM's additions to them
anthropic/             /v1/messages
"""
