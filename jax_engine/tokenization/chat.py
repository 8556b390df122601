"""Chat templates: a conversation as the text that the model was trained on."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer as Backend

from jax_engine.errors import ConfigError, InvalidRequestError

Message = Mapping[str, Any]
_QUIET = "TRANSFORMERS_NO_ADVISORY_WARNINGS"


class ChatTemplate:
    """Renders with Hugging Face's own Jinja environment, imported when first used (about 1 s).

    Args:
        special_tokens: the names that templates refer to (bos_token, eos_token, ...).
    """

    def __init__(self, backend: Backend, template: str | None, special_tokens: dict[str, str]):
        self._backend = backend
        self._template = template
        self._special_tokens = special_tokens
        self._renderer: Any = None

    def render(self, messages: Sequence[Message], **options: Any) -> str:
        """The conversation as text.

        Args:
            options: add_generation_prompt, tools, chat_template, and the template's own.

        Raises:
            ConfigError: the model has no chat template and none was given.
            InvalidRequestError: the template refuses the messages.
        """
        template = options.pop("chat_template", None) or self._template
        if template is None:
            raise ConfigError(
                "This model has no chat template. Pass chat_template=, a Jinja template, or use a "
                "model made for chat."
            )
        if self._renderer is None:
            self._renderer = self._make_renderer()
        from jinja2 import TemplateError

        try:
            text: str = self._renderer.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=template,
                tokenize=False,
                **options,
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise InvalidRequestError(
                f"The chat template refuses these messages: {error}. A message is a dictionary "
                "with role and content."
            ) from error
        return text

    def _make_renderer(self) -> Any:
        before = os.environ.get(_QUIET)
        os.environ[_QUIET] = "1"  # it would say that PyTorch was not found; nobody here needs it
        try:
            from transformers import PreTrainedTokenizerFast
        finally:
            if before is None:
                del os.environ[_QUIET]
            else:
                os.environ[_QUIET] = before
        return PreTrainedTokenizerFast(tokenizer_object=self._backend, **self._special_tokens)
