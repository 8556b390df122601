"""What a benchmark asks of a server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(frozen=True)
class Ask:
    """A request of a benchmark.

    Attributes:
        prompt: text, or token ids where the server takes them (completions).
        num_prompt: tokens of the prompt.
        output_len: tokens to generate.
    """

    prompt: str | list[int]
    num_prompt: int
    output_len: int


@dataclass(frozen=True)
class Target:
    """Where requests go, and what all of them say.

    Attributes:
        chat: the URL takes conversations, and a prompt is the user's one message.
        extra: further fields of each request.
        headers: HTTP headers of each request.
    """

    url: str
    model: str
    chat: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self, ask: Ask) -> bytes:
        """A request's body."""
        if self.chat:
            prompt: dict[str, Any] = {"messages": [{"role": "user", "content": ask.prompt}]}
            limit = "max_completion_tokens"
        else:
            prompt, limit = {"prompt": ask.prompt}, "max_tokens"
        options = {"stream": True, "stream_options": {"include_usage": True}}
        fields = {"model": self.model, **prompt, limit: ask.output_len, **options, **self.extra}
        return msgspec.json.encode(fields)
