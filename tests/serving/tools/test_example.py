"""`examples/tools_client.py`."""

from typing import Any

import pytest

from examples import tools_client
from tests.serving.tools.conftest import Make


def test_the_example(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call, its answer, and then the last word."""
    client, llm = make("Sunny.")
    real = llm._output

    def said(prompt: Any, params: Any, text: str, reason: str | None) -> Any:
        is_first = "21 degrees" not in prompt["prompt"]
        call = '<tool_call>\n{"name": "Weather", "arguments": {"city": "Rome"}}\n</tool_call>'
        return real(prompt, params, call if is_first else text, reason)

    monkeypatch.setattr(llm, "_output", said)
    assert tools_client.ask(client, "Coat?") == "Sunny."
    assert "[assistant]Weather:city=Rome;[tool]In Rome it is 21" in llm.asked[1][0]["prompt"]
