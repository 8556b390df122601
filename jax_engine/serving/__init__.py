"""Serving: the engine in a process of its own, and what talks to it.

async_llm.py       `AsyncLLM`
open_requests.py   what its callers wait for
messages.py        what the two processes say to each other
engine_process.py  the engine's process: receives requests, runs steps, sends outputs
engine_server.py   what it does with each message, without sockets
engine_client.py   starts that process, sends requests, receives outputs
reports.py         what is new in requests, as messages
streams.py         wakes whoever reads the outputs of a request
origin.py          who asked, for logs and traces
request_log.py     a line for each request
tracing.py         a span for each request
page/              the files of the server's page
wire_params.py     parameters of requests, as messages hold them
"""
