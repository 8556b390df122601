"""OpenAI's endpoints, and vLLM's additions to them.

completions.py         /v1/completions
chat_completions.py    /v1/chat/completions
responses_request.py   /v1/responses: the request, and the chat that it asks for
responses_stream.py    /v1/responses: the endpoint, and the events of its stream
embeddings.py          /v1/embeddings, /pooling, /classify, and what endpoints that pool share
scores.py              /score, /rerank
tokenize_endpoints.py  /tokenize, /detokenize, /tokenizer_info
"""
