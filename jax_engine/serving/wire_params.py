"""Parameters of requests as plain data: fields that have another value than the default."""

import dataclasses
import os
from typing import Any

import msgspec

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError
from jax_engine.lora.request import LoRARequest
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import RequestOutputKind, SamplingParams
from jax_engine.structured_outputs import StructuredOutputsParams

# The engine's process is given these in a form of its own, or not at all
_LEFT_OUT = {"output_kind", "flat_logprobs", "skip_clone"}
_OF_SAMPLING, _OF_POOLING = SamplingParams(), PoolingParams()


def written(params: SamplingParams | PoolingParams) -> dict[str, Any]:
    """The fields of a request's parameters that a message holds.

    Raises:
        InvalidRequestError: a field holds what cannot be sent to another process.
    """
    fields = {}
    default = _OF_SAMPLING if isinstance(params, SamplingParams) else _OF_POOLING
    for one in dataclasses.fields(params):
        value = getattr(params, one.name)
        if one.name in _LEFT_OUT or value == getattr(default, one.name):  # None may be another
            continue
        fields[one.name] = _plain(one.name, value)
    return fields


def _plain(name: str, value: Any) -> Any:
    if name == "logits_processors":
        raise InvalidRequestError(
            "logits_processors must be None where the engine has a process of its own, got "
            f"{shown(value)}: build the engine with logits_processors=['module:Class']"
        )
    if isinstance(value, StructuredOutputsParams):
        # An empty schema or regex is one: only these two mean that a field is not given.
        value = {
            field: given
            for field, given in vars(value).items()
            if given is not None and given is not False
        }
    try:
        msgspec.msgpack.encode(value)
    except TypeError as error:
        raise InvalidRequestError(f"{name} cannot be sent to the engine: {error}") from error
    return value


def read_params(
    fields: dict[str, Any], *, pooling: bool, streams: bool
) -> SamplingParams | PoolingParams:
    """The engine's parameters of a request.

    Args:
        streams: whether there is an output after each step; else one at the end.

    Raises:
        InvalidRequestError: a field is out of range.
    """
    if pooling:
        return PoolingParams(**fields)
    guide = fields.pop("structured_outputs", None)
    kind = RequestOutputKind.DELTA if streams else RequestOutputKind.FINAL_ONLY
    return SamplingParams(
        **fields,
        structured_outputs=None if guide is None else StructuredOutputsParams(**guide),
        output_kind=kind,
    )


def written_lora(lora: LoRARequest) -> dict[str, Any]:
    """The adapter of a request: its labels, its path, and its version if one is meant.

    Raises:
        InvalidRequestError: it is in this process's memory alone.
    """
    if not lora.lora_path:
        raise InvalidRequestError(
            "lora_request must have a lora_path where the engine has a process of its own, got "
            f"{lora.lora_name!r} in memory: save it into a folder"
        )
    place = os.path.abspath(lora.lora_path)  # of this process, which may have moved since
    found = {"lora_name": lora.lora_name, "lora_int_id": lora.lora_int_id, "lora_path": place}
    return found if lora.digest is None else found | {"digest": lora.digest}


def streams(params: SamplingParams | PoolingParams) -> bool:
    """Whether somebody reads a request's outputs before its end."""
    if isinstance(params, PoolingParams) or params.is_ranked:
        return False
    return params.output_kind is not RequestOutputKind.FINAL_ONLY
