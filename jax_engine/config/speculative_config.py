"""`SpeculativeConfig`: the settings of speculative decoding, with vLLM's names."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from jax_engine.checks import check_types, shown, suggestion
from jax_engine.errors import ConfigError

METHODS = ("ngram", "suffix", "draft_model", "custom_class")
DraftSampleMethod = Literal["greedy", "probabilistic"]
MAX_SPECULATIVE_TOKENS = 63
DEFAULT_TOKENS = 7  # with the token in front of them they are 8, and steps of 8 tokens exist anyway
DEFAULT_SUFFIX_TOKENS = 31  # long suffixes guess well, and the drafter guesses less by itself
DEFAULT_LOOKUP = 5
MAX_TREE_DEPTH = 1024
_CLASS = re.compile(r"\w+([.:]\w+)+", re.ASCII)  # a class by its name, and no checkpoint's
# Keys of draft models alone, and what they are for other methods.
_OF_DRAFT_MODELS = {
    "draft_sample_method": "greedy", "max_model_len": None, "quantization": None, "revision": None,
}  # fmt: skip
# What vLLM's configurations say beside, and the values that this engine satisfies anyway.
_SATISFIED: dict[str, tuple[Any, ...]] = {
    "disable_padded_drafter_batch": (False, True),
    "draft_tensor_parallel_size": (None, 1),
    "parallel_drafting": (False,),
    "rejection_sample_method": ("standard", "strict"),
}


@dataclass(frozen=True, kw_only=True)
class SpeculativeConfig:
    """Who guesses tokens, and how many.

    Attributes:
        method: "ngram": the tokens that followed the last n tokens before, in the prompt or the
            output (prompt lookup). "suffix": the tokens that followed the longest suffix most
            often, in this sequence or in outputs of earlier requests (suffix decoding).
            "draft_model": those that the model `model` draws, a smaller one. "custom_class": an
            object of the class `model`. None: it follows from `model`.
        model: The class, or its name ("module.Class"); or the draft model, as `EngineConfig.model`.
        num_speculative_tokens: k, the most guesses for a sequence in one step, in [1, 63].
            None: 31 with "suffix", which guesses less where a match is short; else 7.
        prompt_lookup_max: The longest n that "ngram" tries first, at least 1.
        prompt_lookup_min: The shortest n that it tries, at least 1. Each of the two is what the
            other is if only one is given; 5 if none is.
        suffix_decoding_max_tree_depth: The longest suffix that "suffix" looks for, in [1, 1024].
        suffix_decoding_max_cached_requests: How many outputs of earlier requests it keeps, at
            least 0. 0: it looks in no other request, whose text else can be told from how fast
            an answer comes.
        suffix_decoding_max_spec_factor: The most guesses for each token of the suffix, at least 0.
        suffix_decoding_min_token_prob: It guesses a token if at least this share of the places
            of the suffix goes on so, in [0, 1].
        draft_sample_method: How a draft model draws. "greedy": its most probable token.
            "probabilistic": with the request's temperature, filters and random numbers.
        max_model_len: The longest text that a draft model guesses for, in tokens. None: its own
            limit, or the engine's.
        quantization, revision: What `EngineConfig` calls so, for a draft model.
        enforce_eager: The same. None: as the engine's.
        enable_adaptive_verification: Guess less where few guesses were right, and nothing for a
            while where none were. False: always as many as there are.

    Raises:
        ConfigError: A field is out of range, or the method is none of these.
    """

    method: str | None = None
    model: Any = None
    num_speculative_tokens: int | None = None
    prompt_lookup_max: int | None = None
    prompt_lookup_min: int | None = None
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 10_000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    draft_sample_method: DraftSampleMethod = "greedy"
    max_model_len: int | None = None
    quantization: str | None = None
    revision: str | None = None
    enforce_eager: bool | None = None
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
        self._check_model()
        if self.num_speculative_tokens is None:
            most = DEFAULT_SUFFIX_TOKENS if self.method == "suffix" else DEFAULT_TOKENS
            object.__setattr__(self, "num_speculative_tokens", most)
        self._check_range("num_speculative_tokens", 1, MAX_SPECULATIVE_TOKENS)
        self._set_lookup()
        self._check_range("suffix_decoding_max_tree_depth", 1, MAX_TREE_DEPTH)
        self._check_range("suffix_decoding_max_cached_requests", 0)
        self._check_range("suffix_decoding_max_spec_factor", 0)
        self._check_range("suffix_decoding_min_token_prob", 0, 1)

    def _check_model(self) -> None:
        if isinstance(self.model, os.PathLike):
            object.__setattr__(self, "model", os.fspath(self.model))
        if self.method == "custom_class" and self.model is None:
            raise ConfigError(
                "speculative_config: model must be a class or its name ('module.Class') with "
                "method 'custom_class', got None"
            )
        if self.method == "draft_model":
            if not isinstance(self.model, str):
                raise ConfigError(
                    "speculative_config: model must be a directory, a GGUF file or a hub name "
                    f"with method 'draft_model', got {shown(self.model)}"
                )
            if self.max_model_len is not None:
                self._check_range("max_model_len", 1)
            return
        for name, default in _OF_DRAFT_MODELS.items():
            if getattr(self, name) != default:
                raise ConfigError(
                    f"speculative_config: {name} needs method 'draft_model', got "
                    f"{shown(getattr(self, name))} with method {self.method!r}"
                )

    def _method(self) -> str:
        if self.model in (None, "ngram", "[ngram]"):
            return "ngram"
        if self.model == "suffix":
            return "suffix"
        if isinstance(self.model, os.PathLike):
            return "draft_model"
        is_class = not isinstance(self.model, str) or _CLASS.fullmatch(self.model)
        return "custom_class" if is_class and not _is_gguf(self.model) else "draft_model"

    def _set_lookup(self) -> None:
        for name in ("prompt_lookup_min", "prompt_lookup_max"):
            if getattr(self, name) is not None:
                self._check_range(name, 1)
        low, high = self.prompt_lookup_min, self.prompt_lookup_max
        low = high if low is None else low
        low = DEFAULT_LOOKUP if low is None else low
        high = low if high is None else high
        if low > high:
            raise ConfigError(
                "speculative_config: prompt_lookup_min must be at most prompt_lookup_max "
                f"({high}), got {low}"
            )
        object.__setattr__(self, "prompt_lookup_min", low)
        object.__setattr__(self, "prompt_lookup_max", high)

    def _check_range(self, name: str, low: int, high: int | None = None) -> None:
        value = getattr(self, name)
        if not value >= low or (high is not None and value > high):  # a NaN is not at least low
            limit = f"at least {low}" if high is None else f"in [{low}, {high}]"
            raise ConfigError(f"speculative_config: {name} must be {limit}, got {shown(value)}")

    @classmethod
    def of(cls, given: "SpeculativeConfig | Mapping[str, Any]") -> "SpeculativeConfig":
        """The configuration that vLLM's mapping says.

        Raises:
            ConfigError: A key is unknown, or asks for what is not implemented.
        """
        if isinstance(given, SpeculativeConfig):
            return given
        known = [one.name for one in fields(cls)]
        own: dict[str, Any] = {}
        for name, value in given.items():
            if name in known:
                own[name] = value
            elif name not in _SATISFIED:
                raise ConfigError(
                    f"speculative_config: {name} is no key of it"
                    f"{suggestion(str(name), [*known, *_SATISFIED])}"
                )
            elif value not in _SATISFIED[name]:
                raise ConfigError(
                    f"speculative_config: {name} must be "
                    f"{' or '.join(map(shown, _SATISFIED[name]))}, got {shown(value)}"
                )
        return cls(**own)


def _is_gguf(model: Any) -> bool:
    """Whether it is the name of a file, such as "draft.gguf", which looks like that of a class."""
    return isinstance(model, str) and model.endswith(".gguf")
