"""How hidden states become one embedding."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Literal, Self

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError
from jax_engine.typed_fields import check_types, named_fields

PoolingType = Literal["LAST", "MEAN"]
PoolingTask = Literal["embed", "token_embed"]


@named_fields(InvalidRequestError)
@dataclass(kw_only=True)
class PoolingParams:
    """What `LLM.embed` and `LLM.encode` do with the prompt's final hidden states.

    Attributes:
        pooling_type: "LAST": the last token's; "MEAN": their mean. In any case.
        normalize: Scale to length 1.
        use_activation: vLLM's name for `normalize`; where it is given, it counts.
        dimensions: None: no model here was trained for embeddings that are cut.
        task: "embed": one vector; "token_embed": one for each token of the prompt.

    Raises:
        InvalidRequestError: There is no such pooling.
    """

    pooling_type: PoolingType = "LAST"
    normalize: bool = True
    use_activation: bool | None = None
    dimensions: int | None = None
    task: PoolingTask | None = None

    def __post_init__(self) -> None:
        if isinstance(self.pooling_type, str):
            self.pooling_type = self.pooling_type.upper()  # type: ignore[assignment]
        check_types(self, InvalidRequestError)
        if self.use_activation is not None:
            self.normalize = self.use_activation
        if self.dimensions is not None:
            raise InvalidRequestError(
                f"dimensions must be None, got {shown(self.dimensions)}: the model was not "
                "trained for embeddings that are cut"
            )

    def clone(self) -> Self:
        return deepcopy(self)
