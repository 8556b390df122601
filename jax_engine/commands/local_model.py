"""Answers of an engine in this process, for `chat` and `complete`."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jax_engine.commands.answers import TextDelta
from jax_engine.config.engine_args import EngineArgs
from jax_engine.engine.calls import Calls
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.requests.default_sampling import default_sampling
from jax_engine.engine.requests.prompts import PromptInput, chat_prompts
from jax_engine.outputs import RequestOutput
from jax_engine.sampling_params import RequestOutputKind, SamplingParams
from jax_engine.tokenization.chat_template import load_chat_template


class LocalModel:
    """A source of answers. One process starts sooner than `AsyncLLM`'s two.

    Args:
        args: with the fields of `EngineArgs`.
        chat_template: as for `LLM`.

    Raises:
        JaxEngineError: as `LLM`.
    """

    def __init__(self, args: argparse.Namespace, chat_template: str | None = None) -> None:
        self._template = load_chat_template(chat_template)
        config = EngineArgs.from_cli_args(args).create_engine_config()
        self._engine = LLMEngine.from_config(config)
        self._defaults = default_sampling(config, self._engine.model_source)
        self._calls = Calls(self._engine)

    def complete(self, prompt: str, fields: Mapping[str, Any]) -> Iterator[TextDelta]:
        """As `Source.complete`."""
        return self._pieces(lambda: prompt, fields)

    def chat(
        self, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
    ) -> Iterator[TextDelta]:
        """As `Source.chat`."""

        def prompt() -> PromptInput:  # the first one imports what renders templates: 1 s
            tokenizer = self._engine.text_tokenizer()
            return chat_prompts(tokenizer, [*messages], None, chat_template=self._template)[0]

        return self._pieces(prompt, {"max_tokens": None} | self._defaults | dict(fields))

    def _pieces(
        self, make_prompt: Callable[[], PromptInput], fields: Mapping[str, Any]
    ) -> Iterator[TextDelta]:
        chosen = self._defaults | dict(fields)
        params = SamplingParams(**chosen, output_kind=RequestOutputKind.DELTA)
        request = self._engine.check_request(make_prompt(), params)
        for output in self._calls.stream(request):
            assert isinstance(output, RequestOutput)
            yield from (TextDelta(one.index, one.text) for one in output.outputs)
