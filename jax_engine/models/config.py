"""A model's architecture, whichever kind of file it comes from."""

import dataclasses
from typing import Literal

from jax_engine.errors import ConfigError
from jax_engine.model_spec import RopeConfig

HeadTask = Literal["classify", "token_classify"]


@dataclasses.dataclass(frozen=True)
class HeadConfig:
    """A head that returns scores instead of tokens: for a prompt, or for each of its tokens.

    Attributes:
        labels: Names of the scores, in order.
    """

    task: HeadTask
    labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Architecture of a decoder-only transformer. Hashable: it is static in compiled functions.

    Attributes:
        head: Its head for scores; None: it generates text.
        matryoshka_dimensions: Widths that its embeddings may be cut to; empty: any; None: they
            may not be cut.

    Raises:
        ConfigError: a size is not positive, or two sizes do not fit together.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-5
    rope: RopeConfig = dataclasses.field(default_factory=RopeConfig)
    tie_word_embeddings: bool = False
    sliding_window: int | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    head: HeadConfig | None = None
    matryoshka_dimensions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "max_position_embeddings",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"model {name} must be a positive integer, got {value!r}.")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"model num_heads ({self.num_heads}) must be a multiple of num_kv_heads "
                f"({self.num_kv_heads})."
            )
        if self.head_dim % 2:
            raise ConfigError(f"model head_dim must be even for RoPE, got {self.head_dim}.")
        self._check_rope()
        if self.sliding_window is not None and self.sliding_window < 1:
            raise ConfigError(
                f"model sliding_window must be None or at least 1, got {self.sliding_window}."
            )

    def _check_rope(self) -> None:
        """Checks the rotary embedding against the size of the heads."""
        if self.rope.type == "dynamic" and self.head_dim < 4:
            raise ConfigError(
                f"model head_dim must be at least 4 for rope type 'dynamic', got {self.head_dim}."
            )
        factors = self.rope.frequency_factors
        if factors is not None and len(factors) != self.head_dim // 2:
            raise ConfigError(
                f"rope frequency_factors must be {self.head_dim // 2} numbers, half of head_dim "
                f"({self.head_dim}), got {len(factors)}."
            )

    @property
    def max_context_len(self) -> int:
        """Longest context the position encoding was made for, RoPE scaling included, in tokens.

        At most 2**31 - 1, the largest 32-bit index.
        """
        rope, longest = self.rope, self.max_position_embeddings
        if rope.type == "yarn" and rope.original_max_position_embeddings:
            longest = int(rope.original_max_position_embeddings * rope.factor)
        elif rope.type in ("linear", "dynamic"):
            longest = int(longest * rope.factor)
        return min(longest, 2**31 - 1)
