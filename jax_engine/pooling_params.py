"""How hidden states become one embedding."""

from dataclasses import dataclass
from typing import Literal, get_args

from jax_engine.errors import InvalidRequestError

PoolingType = Literal["LAST", "MEAN"]


@dataclass(kw_only=True)
class PoolingParams:
    """What `LLM.embed` does with the prompt's final hidden states.

    Attributes:
        pooling_type: "LAST": the last token's; "MEAN": their mean. In any case.
        normalize: Scale to length 1.

    Raises:
        InvalidRequestError: There is no such pooling.
    """

    pooling_type: PoolingType = "LAST"
    normalize: bool = True

    def __post_init__(self) -> None:
        kind = str(self.pooling_type).upper()
        if kind not in get_args(PoolingType):
            raise InvalidRequestError(
                f"pooling_type must be one of {', '.join(get_args(PoolingType))}, "
                f"got {self.pooling_type!r}"
            )
        self.pooling_type = "LAST" if kind == "LAST" else "MEAN"
