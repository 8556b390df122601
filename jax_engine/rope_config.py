"""Rotary position embedding: its frequencies, and how they reach beyond the trained context."""

import dataclasses
from typing import Literal, get_args

from jax_engine.errors import ConfigError

RopeType = Literal["none", "linear", "dynamic", "llama3", "yarn", "longrope"]


@dataclasses.dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding: the base `theta`, and how it is stretched beyond the trained context.

    `factor` is the stretch; `original_max_position_embeddings` is the trained context, needed by
    llama3 and yarn. `frequency_factors` (D/2 divisors, from a GGUF file's rope_freqs tensor) is the
    result of the llama3 formula and replaces it. longrope has two sets of them, `short_factors` and
    `long_factors`; `for_length` chooses. Raises ConfigError for an invalid value.
    """

    theta: float = 10000.0
    type: RopeType = "none"
    factor: float = 1.0
    original_max_position_embeddings: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    frequency_factors: tuple[float, ...] | None = None
    short_factors: tuple[float, ...] | None = None
    long_factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.type not in get_args(RopeType):
            known = ", ".join(get_args(RopeType))
            raise ConfigError(f"rope type {self.type!r} is not supported; known: {known}.")
        if self.theta <= 0 or self.factor <= 0:
            raise ConfigError(
                f"rope theta and factor must be positive, got {self.theta=}, {self.factor=}."
            )
        if self.type == "llama3" and self.frequency_factors is None:
            _require_original_context(self)
            if self.high_freq_factor <= self.low_freq_factor:
                raise ConfigError(
                    f"rope high_freq_factor must exceed low_freq_factor ({self.low_freq_factor}), "
                    f"got {self.high_freq_factor}."
                )
        if self.type == "yarn":
            _require_original_context(self)
        if self.type == "longrope":
            _require_original_context(self)
            if self.short_factors is None or self.long_factors is None:
                raise ConfigError("rope type 'longrope' needs short_factor and long_factor.")

    def for_length(self, max_model_len: int) -> "RopeConfig":
        """The same embedding for sequences of at most so many tokens.

        Cached keys cannot be rotated again when a sequence outgrows the trained context. So one set
        of longrope's factors serves all sequences of an engine, as in vLLM.
        """
        if self.type != "longrope":
            return self
        is_long = max_model_len > (self.original_max_position_embeddings or 0)
        chosen = self.long_factors if is_long else self.short_factors
        return dataclasses.replace(self, frequency_factors=chosen)


def _require_original_context(rope: RopeConfig) -> None:
    if not rope.original_max_position_embeddings:
        raise ConfigError(f"rope type {rope.type!r} needs original_max_position_embeddings > 0.")
