"""`/v1/messages`, Anthropic's API, over the same chats as `/v1/chat/completions`.

request.py     the request
content.py     its messages, and the blocks in them, as messages of a chat
tools.py       its tools as those of a chat
convert.py     the whole as a `ChatRequest`
events.py      the events of a stream, and the answer that they add up to
error_body.py  errors in Anthropic's shape
endpoint.py    the endpoints
"""
