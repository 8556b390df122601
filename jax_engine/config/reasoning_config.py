"""`ReasoningConfig`: what a model writes around its reasoning, with vLLM's names."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from jax_engine.checks import check_types, named_fields, shown, suggestion
from jax_engine.config.reasoning_markers import (
    REASONING_MARKERS,
    ReasoningMarkers,
    reasoning_of_template,
)
from jax_engine.errors import ConfigError


@named_fields(ConfigError)
@dataclass(frozen=True)
class ReasoningConfig:
    """The markers that `SamplingParams.thinking_token_budget` counts from, and forces.

    Attributes:
        reasoning_parser: Whose markers they are: a name in `REASONING_MARKERS`. "none": the model
            has none. "": as its chat template tells.
        reasoning_start_str: In place of the text that begins reasoning; "": as it is.
        reasoning_end_str: What is forced when the budget is spent, and ends reasoning as the marker
            does; it may say more before the marker. "": the marker alone.

    Raises:
        ConfigError: The name is none of these, or only one of the texts is known.
    """

    reasoning_parser: str = ""
    reasoning_start_str: str = ""
    reasoning_end_str: str = ""

    def __post_init__(self) -> None:
        check_types(self, ConfigError, "reasoning_config: ")
        known = [*REASONING_MARKERS, "none"]
        if self.reasoning_parser and self.reasoning_parser not in known:
            raise ConfigError(
                f"reasoning_config: reasoning_parser must be one of {', '.join(known)}, got "
                f"{shown(self.reasoning_parser)}"
            )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "ReasoningConfig":
        """The configuration that vLLM's mapping says.

        Raises:
            ConfigError: A key is unknown, or a value wrong.
        """
        known = [one.name for one in fields(cls)]
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"reasoning_config: {name} is no key of it{suggestion(str(name), known)}"
                )
        return cls(**{name: "" if value is None else value for name, value in given.items()})

    def markers(self, template: str | None) -> ReasoningMarkers | None:
        """The markers of a model with this chat template; None: there are none.

        Raises:
            ConfigError: Only one of the two texts is known.
        """
        name = self.reasoning_parser or reasoning_of_template(template)
        found = REASONING_MARKERS.get(name or "")
        begin, end = self.reasoning_start_str, self.reasoning_end_str
        if found is not None:
            return replace(found, begin=begin or found.begin, close=end or found.close)
        if bool(begin) != bool(end):
            missing = "reasoning_end_str" if begin else "reasoning_start_str"
            raise ConfigError(
                f"reasoning_config: {missing} must be given too, since no reasoning_parser is "
                "named and the chat template shows no markers"
            )
        return ReasoningMarkers(begin, end) if begin else None
