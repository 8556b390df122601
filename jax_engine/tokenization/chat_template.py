"""Chat templates: a conversation as the text that the model was trained on."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from tokenizers import Tokenizer as Backend

from jax_engine.checks import printable, shown
from jax_engine.errors import ConfigError, InvalidRequestError
from jax_engine.tokenization.chat_content import (
    ContentFormat,
    Message,
    checked_messages,
    find_format,
    with_format,
)

Tool = Mapping[str, Any] | Callable[..., Any]
MAX_TEMPLATES = 64  # remembered, since each request may bring another one
DEFAULT, WITH_TOOLS = "default", "tool_use"
_transformers = logging.getLogger("transformers")


class RefusedByTemplateError(InvalidRequestError):
    """The template raised an error, or is no sound Jinja: whoever brought it may want its name."""


class ChatTemplate:
    """Renders with Hugging Face's own Jinja environment, imported when first used (about 1 s).

    Attributes:
        templates: the model's own, in Jinja, by name: "default", "tool_use", and others.
        special_tokens: tokens by the names that templates use (bos_token, eos_token, ...).
    """

    def __init__(
        self, backend: Backend, templates: Mapping[str, str], special_tokens: dict[str, str]
    ):
        self._backend = backend
        self.templates = templates
        self.special_tokens = special_tokens
        self._formats: dict[str, set[str]] = {}

    @property
    def template(self) -> str | None:
        """The model's own for conversations without tools; None: it has none."""
        return self.templates.get(DEFAULT)

    def chosen(self, given: str | None, *, with_tools: bool) -> str | None:
        """The template that is used, as in transformers; None: there is none.

        Args:
            given: Jinja, or the name of one of the model's own; None: its own for this use.
            with_tools: whether the conversation has tools.
        """
        if given:
            return self.templates.get(given, given)
        own = self.templates.get(WITH_TOOLS) if with_tools else None
        return own or self.template

    def render(
        self,
        messages: Sequence[Message],
        *,
        chat_template: str | None = None,
        content_format: ContentFormat = "auto",
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tools: Sequence[Tool] | None = None,
        **options: Any,
    ) -> str:
        """Renders a conversation as text.

        Args:
            chat_template: Jinja in place of the model's own, or the name of one of its own. None:
                its "tool_use" where there are tools, else its "default".
            content_format: The form of contents for the template: "string", "openai" (lists of
                parts), or "auto", which the template accepts.
            add_generation_prompt: end with the header of the model's turn.
            continue_final_message: leave the last message open, so that the model continues it.
            tools: JSON schemas, or functions with type hints and a docstring of their arguments. An
                empty list is none.
            options: further options of the template; an empty list of documents is none.

        Raises:
            ConfigError: the model has no chat template and none was given.
            InvalidRequestError: a message or a tool has a wrong form, or the options contradict
                each other.
            RefusedByTemplateError: the template refuses the messages.
        """
        if add_generation_prompt and continue_final_message:
            raise InvalidRequestError(
                "add_generation_prompt and continue_final_message must not both be True, got both: "
                "set add_generation_prompt=False to go on with the last message, or "
                "continue_final_message=False to begin a new one"
            )
        if content_format not in get_args(ContentFormat):
            raise InvalidRequestError(
                f"chat_template_content_format must be one of {', '.join(get_args(ContentFormat))},"
                f" got {content_format!r}"
            )
        template = self.chosen(chat_template, with_tools=bool(tools))
        if template is None:
            raise ConfigError(self._no_template())
        checked = checked_messages(messages)
        if continue_final_message and messages[-1].get("content") is None:
            raise InvalidRequestError('the last message has no "content" to continue')
        formats: set[str] = {content_format}
        if content_format == "auto":
            formats = self._formats_of(template)
        return self._apply(
            template,
            with_format(checked, formats),
            tools=[_schema(i, tool) for i, tool in enumerate(tools)] if tools else None,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **{name: one for name, one in options.items() if name != "documents" or one},
        )

    def _no_template(self) -> str:
        if not self.templates:
            return (
                "This model has no chat template. Pass chat_template=, a Jinja template, or use a "
                "model made for chat."
            )
        return (
            f"This model has several chat templates and none called {DEFAULT!r}. Pass "
            f"chat_template=, one of their names ({', '.join(sorted(self.templates))}) or a "
            "template in Jinja."
        )

    @cached_property
    def renderer(self) -> Any:
        """Hugging Face's tokenizer of the same vocabulary, which renders templates too."""
        return self._make_renderer()

    def _apply(self, template: str, messages: list[dict[str, Any]], **options: Any) -> str:
        try:
            text: str = self.renderer.apply_chat_template(
                messages, chat_template=template, tokenize=False, **options
            )
        except Exception as error:  # a template may raise anything, and so may what it prints
            raise RefusedByTemplateError(
                f"The chat template refuses these messages: {printable(error)}. A message is a "
                "dictionary with role and content."
            ) from error
        return text

    def _formats_of(self, template: str) -> set[str]:
        if template not in self._formats:
            if len(self._formats) >= MAX_TEMPLATES:
                self._formats.clear()
            self._formats[template] = find_format(lambda probe: self._apply(template, probe))
        return self._formats[template]

    def _make_renderer(self) -> Any:
        named = set(self.special_tokens.values())
        added = self._backend.get_added_tokens_decoder().values()
        tokenizer = renderer_class()(
            tokenizer_object=self._backend,
            clean_up_tokenization_spaces=False,
            extra_special_tokens=[
                str(one.content) for one in added if one.special and one.content not in named
            ],
            **self.special_tokens,
        )
        several = self.templates.keys() - {DEFAULT}
        tokenizer.chat_template = dict(self.templates) if several else self.template
        return tokenizer


def renderer_class() -> Any:
    """The class of `ChatTemplate.renderer`; its first import takes about a second.

    A server imports it in a thread, while others start processes: the environment, which a process
    is started with, must stay as it is.
    """
    _transformers.addFilter(_unless_advice)
    try:
        from transformers import PreTrainedTokenizerFast
    finally:
        _transformers.removeFilter(_unless_advice)
    return PreTrainedTokenizerFast


def _unless_advice(record: logging.LogRecord) -> bool:
    """Without the warning that PyTorch is missing, which is not needed here."""
    return record.levelno != logging.WARNING


def load_chat_template(source: str | Path | None) -> str | None:
    """Loads a template that is given as Jinja, or as the path of a file with it.

    Raises:
        ConfigError: It is neither, or the file is unreadable.
    """
    if source is None:
        return None
    if not isinstance(source, str | Path):
        raise ConfigError(f"chat_template must be Jinja or a path, got {shown(source)}")
    text = str(source)
    if any(character in text for character in "{}\n"):
        return text
    try:
        return Path(text).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"chat_template must be Jinja or the path of a file, got {shown(source)}: {error}"
        ) from error


def _schema(index: int, tool: Tool) -> dict[str, Any]:
    """A tool as templates expect it: the JSON schema that was given, or a function's."""
    if isinstance(tool, Mapping):
        return dict(tool)
    if not callable(tool):
        raise InvalidRequestError(
            f"tools[{index}] must be a JSON schema (a dict) or a function, "
            f"got {type(tool).__name__}"
        )
    from transformers.utils import get_json_schema

    try:
        schema: dict[str, Any] = get_json_schema(tool)
    except Exception as error:  # some functions have no signature
        raise InvalidRequestError(
            f"tools[{index}] must be a function with type hints and a docstring that explains its "
            f"arguments: {printable(error)}"
        ) from error
    return schema
