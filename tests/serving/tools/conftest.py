"""OpenAI's client of a server whose model says what it is told to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.support.scripted_llm import ScriptedLLM

Make = Callable[..., tuple[openai.OpenAI, ScriptedLLM]]
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.reasoning_content }}{{ m.reasoning }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}:"
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}"
    "{{ m.tool_call_id }}{% endfor %}{% if tools %}<tool_call>{{ tools | length }}{% endif %}"
    "{% if add_generation_prompt %}[assistant]{{ '<think>' if think }}{% endif %}"
    "{{ '</think>' if false }}"
)


@pytest.fixture
def make(checkpoint: Path) -> Make:
    def of(text: str, **settings: Any) -> tuple[openai.OpenAI, ScriptedLLM]:
        llm = ScriptedLLM(load_tokenizer(checkpoint), text=text)
        settings = {"chat_template": TEMPLATE} | settings
        app = make_app(Service(llm, ServerSettings(names=("tiny",), **settings)))
        http = TestClient(app, base_url="http://server/v1")
        return openai.OpenAI(base_url="http://server/v1", api_key="x", http_client=http), llm

    return of
