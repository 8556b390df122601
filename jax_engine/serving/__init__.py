"""Serving: the link to the engine's process, and the HTTP API on top of it.

async_llm.py       `AsyncLLM`: the engine's client in the API's process
engine_group.py    the engines of an `AsyncLLM`: one, or several (data parallel)
engine_client.py   starts an engine's process, sends it messages, and watches it
open_requests.py   the requests that wait for the engine, and the stream of each one's outputs
messages.py        the messages between the two processes, parameters of requests included
engine_process.py  the engine's process: receives messages, runs steps, sends outputs
engine_server.py   what that process does with each message, without sockets
text_encoder.py    tokenises texts without delaying the event loop
served_adapters.py the LoRA adapters that a server offers by name
request_log.py     a log line for each request, and the client's request that it names
tracing.py         an OpenTelemetry span for each request
stat_loggers.py    the engine's statistics: for Prometheus, and as a log line every few seconds
api/               HTTP: the server, and the APIs of OpenAI and Anthropic
parsers/           tool calls and reasoning in a model's text
page/              the files of the server's web page
"""
