"""What is known of a model before its weights are read, whichever kind of file it comes from."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from jax_engine.model_spec import ModelSpec
from jax_engine.models.pooling_recipe import PoolingRecipe
from jax_engine.weights.transforms import Declaration

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
    """A decoder-only transformer.

    Attributes:
        architecture: the name in `config.json`'s `architectures`, or the nearest to it.
        spec: the decoder's layers.
        weights: how the decoder's parameters are made of the checkpoint's tensors.
        extra_layers: how many layers behind the last one the checkpoint has that are not used here:
            they guess further tokens.
        head: its head for scores; None: it generates text.
        matryoshka_dimensions: widths that its embeddings may be cut to; empty: any; None: they
            may not be cut.
        pooling: how its embeddings are made.
        whole: the layers of the whole model, where `spec` is what devices hold of it; None: all.
    """

    architecture: str
    spec: ModelSpec
    weights: Mapping[str, Declaration] = dataclasses.field(compare=False, repr=False)
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    extra_layers: int = 0
    head: HeadConfig | None = None
    matryoshka_dimensions: tuple[int, ...] | None = None
    pooling: PoolingRecipe = dataclasses.field(default_factory=PoolingRecipe)
    whole: ModelSpec | None = None

    @property
    def undivided(self) -> "ModelConfig":
        """The model as its checkpoint has it, however many devices share it."""
        if self.whole is None:
            return self
        return dataclasses.replace(self, spec=self.whole, whole=None)

    @property
    def vocab_size(self) -> int:
        return self.spec.vocab_size

    @property
    def max_context_len(self) -> int:
        """Longest context that the model was made for, in tokens."""
        return self.spec.max_context_len

    @property
    def hidden_size(self) -> int:
        """E, the width of the residual stream and of embeddings."""
        return self.spec.width
