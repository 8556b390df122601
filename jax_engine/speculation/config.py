"""`SpeculativeConfig`: the settings of speculative decoding, with vLLM's names."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from jax_engine.checks import shown
from jax_engine.errors import ConfigError
from jax_engine.typed_fields import check_types, suggestion

METHODS = ("ngram", "custom_class")
MAX_SPECULATIVE_TOKENS = 63
DEFAULT_TOKENS = 7  # with the token in front of them they are 8, and steps of 8 tokens exist anyway
DEFAULT_LOOKUP = 5
# What vLLM's configurations say beside, and the values that this engine satisfies anyway.
_SATISFIED: dict[str, tuple[Any, ...]] = {
    "disable_padded_drafter_batch": (False, True),
    "draft_sample_method": ("greedy",),
    "draft_tensor_parallel_size": (None, 1),
    "enforce_eager": (None, False, True),
    "parallel_drafting": (False,),
    "rejection_sample_method": ("standard", "strict"),
}


@dataclass(frozen=True, kw_only=True)
class SpeculativeConfig:
    """Who guesses tokens, and how many.

    Attributes:
        method: "ngram": the tokens that followed the last n tokens before, in the prompt or the
            output (prompt lookup). "custom_class": an object of the class `model`. None: it
            follows from `model`.
        model: The class, or its name ("module.Class").
        num_speculative_tokens: k, the most guesses for a sequence in one step, in [1, 63].
        prompt_lookup_max: The longest n that "ngram" tries first, at least 1.
        prompt_lookup_min: The shortest n that it tries, at least 1. Each of the two is what the
            other is if only one is given; 5 if none is.
        enable_adaptive_verification: Guess less where few guesses were right, and nothing for a
            while where none were. False: always as many as there are.

    Raises:
        ConfigError: A field is out of range, or the method is none of these.
    """

    method: str | None = None
    model: Any = None
    num_speculative_tokens: int = DEFAULT_TOKENS
    prompt_lookup_max: int | None = None
    prompt_lookup_min: int | None = None
    enable_adaptive_verification: bool = True

    def __post_init__(self) -> None:
        check_types(self, ConfigError, "speculative_config: ")
        if self.method is None:
            object.__setattr__(self, "method", self._method())
        if self.method not in METHODS:
            raise ConfigError(
                f"speculative_config: method must be one of {', '.join(METHODS)}, "
                f"got {shown(self.method)}"
            )
        if self.method == "custom_class" and self.model is None:
            raise ConfigError(
                "speculative_config: model must be a class or its name ('module.Class') with "
                "method 'custom_class', got None"
            )
        _check_count("num_speculative_tokens", self.num_speculative_tokens, MAX_SPECULATIVE_TOKENS)
        self._set_lookup()

    def _method(self) -> str:
        if self.model in (None, "ngram", "[ngram]"):
            return "ngram"
        return "custom_class"

    def _set_lookup(self) -> None:
        low, high = self.prompt_lookup_min, self.prompt_lookup_max
        low = high if low is None else low
        low = DEFAULT_LOOKUP if low is None else low
        high = low if high is None else high
        _check_count("prompt_lookup_min", low)
        _check_count("prompt_lookup_max", high)
        if low > high:
            raise ConfigError(
                "speculative_config: prompt_lookup_min must be at most prompt_lookup_max "
                f"({high}), got {low}"
            )
        object.__setattr__(self, "prompt_lookup_min", low)
        object.__setattr__(self, "prompt_lookup_max", high)

    @classmethod
    def of(cls, given: "SpeculativeConfig | Mapping[str, Any]") -> "SpeculativeConfig":
        """The configuration that vLLM's mapping says.

        Raises:
            ConfigError: A key is unknown, or asks for what is not implemented.
        """
        if isinstance(given, SpeculativeConfig):
            return given
        known = {one.name for one in fields(cls)}
        own: dict[str, Any] = {}
        for name, value in given.items():
            if name in known:
                own[name] = value
            elif name not in _SATISFIED:
                raise ConfigError(
                    f"speculative_config: {name} is no key of it"
                    f"{suggestion(name, [*known, *_SATISFIED])}"
                )
            elif value not in _SATISFIED[name]:
                raise ConfigError(
                    f"speculative_config: {name} must be "
                    f"{' or '.join(map(shown, _SATISFIED[name]))}, got {shown(value)}"
                )
        if own.get("num_speculative_tokens", 0) is None:
            del own["num_speculative_tokens"]
        return cls(**own)


def _check_count(name: str, value: int, high: int | None = None) -> None:
    if value < 1 or (high is not None and value > high):
        limit = "at least 1" if high is None else f"in [1, {high}]"
        raise ConfigError(f"speculative_config: {name} must be {limit}, got {shown(value)}")
