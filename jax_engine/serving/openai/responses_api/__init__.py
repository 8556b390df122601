"""`/v1/responses`, OpenAI's Responses API, over the same chats as `/v1/chat/completions`.

request.py    the request
items.py      its input as messages
tools.py      its tools as those of a chat
convert.py    the whole as a `ChatRequest`
answer.py     the answer, and the items in it
events.py     the events of a stream
endpoint.py   the endpoint

Nothing is stored: a client sends the whole conversation each time.
"""
