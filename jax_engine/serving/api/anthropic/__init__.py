"""`/v1/messages`, Anthropic's API, over the same chats as `/v1/chat/completions`.

messages_request.py  the request, and the chat that it asks for
messages_stream.py   the endpoints, and the events of their stream
"""
