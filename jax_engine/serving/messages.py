"""The messages between the API's process and the engine's process, as msgpack.

The API's process sends commands. The engine's process answers each step with one `Outputs`. All
times are seconds of `time.monotonic()`, which is one clock for all processes of a machine. The
parameters of a request travel as plain data: the fields whose value is not the default.
"""

import dataclasses
import os
from typing import Any, Literal

import msgspec

from jax_engine.checks import shown
from jax_engine.engine.engine_core_output import EngineCoreOutput
from jax_engine.errors import InvalidRequestError
from jax_engine.lora.request import LoRARequest
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

COMMANDS, REPORTS = "commands", "reports"  # names of the two sockets


class Message(msgspec.Struct, array_like=True, gc=False):
    """Encoded as an array that begins with the name of its class, as `EngineCoreOutput` are."""


class Settings(Message, tag="settings"):
    """The first message to the engine's process.

    Attributes:
        settings: the arguments of `EngineConfig`.
        cores, environment, rank: as in `Place`.
    """

    settings: dict[str, Any]
    cores: list[int] = []
    environment: dict[str, str] = {}
    rank: int = 0


class Add(Message, tag="add"):
    """A request.

    Attributes:
        params: fields of `SamplingParams`, or of `PoolingParams` if `pooling`; see `wire_params`.
        streams: whether there is output after each step; else once, at the end.
        prediction: tokens that the output is expected to have.
        lora: fields of `LoRARequest`; None: the model alone.
        token_type_ids: as in `Prompt`.
        embeds: the bytes of `Prompt.embeds`, in the form that `Ready` names; None: there are none.
    """

    request_id: str
    token_ids: list[int]
    params: dict[str, Any]
    pooling: bool
    arrival_time: float
    cache_salt: str | None = None
    priority: int = 0
    timeout: float | None = None
    streams: bool = True
    prediction: list[int] = []
    lora: dict[str, Any] | None = None
    token_type_ids: list[int] | None = None
    embeds: bytes | None = None


class Abort(Message, tag="abort"):
    """Ends requests; ids that are not running are ignored."""

    request_ids: list[str]


Question = Literal["stats", "state", "metrics", "reset_prefix_cache"]


class Ask(Message, tag="ask"):
    """A question about the whole engine. The `Answer` has the same number."""

    number: int
    question: Question


LoRAAction = Literal["add", "remove", "pin", "list"]


class AskLoRA(Message, tag="ask_lora"):
    """A call of the engine's method for adapters. The `Answer` has the same number.

    Attributes:
        lora: fields of the `LoRARequest` that "add" adds.
        lora_id: the adapter that "remove" or "pin" is about.
    """

    number: int
    action: LoRAAction
    lora: dict[str, Any] | None = None
    lora_id: int = 0


PauseMode = Literal["abort", "wait", "keep"]


class Pause(Message, tag="pause"):
    """No more steps, as `AsyncLLM.pause_generation` says. The `Answer` comes once none runs."""

    number: int
    mode: PauseMode
    clear_cache: bool


class CancelPause(Message, tag="cancel_pause"):
    """Whoever sent the `Pause` of this number waits no more, and will not end it."""

    number: int


class Resume(Message, tag="resume"):
    """Steps run again. The `Answer` has the same number."""

    number: int


class Stop(Message, tag="stop"):
    """The process ends; requests that still run are aborted."""


class Ready(Message, tag="ready"):
    """The engine was built.

    Attributes:
        model: the name or path of the model.
        source: the directory or GGUF file that it came from.
        vocab_size: width of the model's logits, padding included.
        head_task, labels: task and labels of the model's head; None: it has none.
        token_types: how many types of tokens the model knows.
        is_encoder: whether it reads whole texts and generates nothing.
        width, dtype: the numbers of a vector of the model, and the name of their dtype.
    """

    model: str
    source: str
    vocab_size: int
    max_model_len: int
    num_gpu_blocks: int
    block_size: int
    head_task: str | None = None
    labels: list[str] = []
    token_types: int = 0
    is_encoder: bool = False
    width: int = 0
    dtype: str = "float32"


class StartFailed(Message, tag="start_failed"):
    """The engine could not be built: the name of the error's class, and its message."""

    error: str
    message: str


class Pooled(Message, tag="pooled"):
    """The output of a pooling request: an array's bytes, shape and dtype."""

    request_id: str
    data: bytes
    shape: list[int]
    dtype: str
    finished: bool


class Refused(Message, tag="refused"):
    """A request was not accepted, or a step failed with it: the error's class and message."""

    request_id: str
    error: str
    message: str


class Outputs(Message, tag="outputs"):
    """What a step gave, or what came between two steps."""

    outputs: list[EngineCoreOutput | Pooled | Refused]


class Answer(Message, tag="answer"):
    """The answer to `Ask`; `error` says why there is none, and `kind` is that error's class."""

    number: int
    value: Any = None
    error: str | None = None
    kind: str = "JaxEngineError"


class Heartbeat(Message, tag="beat"):
    """Sent twice a second.

    Attributes:
        step_seconds: for how long the current step has run; None: no step is running.
    """

    step_seconds: float | None


Command = Settings | Add | Abort | Ask | AskLoRA | Pause | CancelPause | Resume | Stop
Report = Ready | StartFailed | Outputs | Answer | Heartbeat

encode = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_report = msgspec.msgpack.Decoder(Report).decode


# The engine's process is given these in a form of its own, or not at all
_LEFT_OUT = {"output_kind", "flat_logprobs", "skip_clone"}
_OF_SAMPLING, _OF_POOLING = SamplingParams(), PoolingParams()


def params_fields(params: SamplingParams | PoolingParams) -> dict[str, Any]:
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


def lora_fields(lora: LoRARequest) -> dict[str, Any]:
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
