"""The parts of vLLM's engine that its programs use beside requests, under vLLM's names.

`llm_engine.vllm_config` has the fields that programs read.

`save_sharded_state` writes the weights as safetensors files, to be loaded with their configuration.
vLLM writes a file for each device; there is one here, so it is rank 0.

`LLM(logits_processors=[SomeClass])` runs vLLM's logits-processor classes one request at a time, as
this engine runs functions. Each request gets a processor object of its own: a batch of one row,
index 0. Logits are PyTorch tensors if PyTorch is installed, else NumPy arrays.
"""

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from jax_engine.engine.startup.build import EngineParts
from jax_engine.engine.startup.device_settings import resolve_dtype
from jax_engine.errors import ConfigError, InvalidRequestError
from jax_engine.models.checkpoints.checkpoint import tensor_source
from jax_engine.models.checkpoints.mistral_params import read_fields
from jax_engine.models.checkpoints.weight_layouts import INDEX
from jax_engine.models.hf_fields import overridden
from jax_engine.sampling_params import SamplingParams
from jax_engine.weights.tensor_source import TensorSource


def vllm_config(engine: EngineParts) -> SimpleNamespace:
    """`model_config` with `hf_config`, `cache_config`, `scheduler_config`: to be read only.

    Args:
        engine: Its parts, or the `LLMEngine` itself, whose attributes have the same names.
    """
    config, model = engine.config, engine.model_config
    return SimpleNamespace(
        model_config=SimpleNamespace(
            model=config.model,
            tokenizer=config.tokenizer or config.model,
            max_model_len=engine.max_model_len,
            dtype=config.dtype,
            seed=config.seed,
            hf_config=_hf_config(engine),
            get_vocab_size=lambda: model.vocab_size,
            get_hidden_size=lambda: model.hidden_size,
        ),
        cache_config=SimpleNamespace(
            block_size=config.block_size,
            num_gpu_blocks=engine.memory.num_blocks,
            enable_prefix_caching=config.prefix_caching,
        ),
        scheduler_config=SimpleNamespace(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=engine.scheduler.max_num_batched_tokens,
        ),
        speculative_config=config.speculative_config,
    )


def _hf_config(engine: EngineParts) -> SimpleNamespace:
    """The fields of config.json; of a GGUF file, which has none, only the labels."""
    raw: dict[str, Any] = {}
    if engine.model_source.is_dir():
        fields = read_fields(engine.model_source, engine.config.config_format)
        raw = overridden(fields, engine.config.hf_overrides)
    labels = () if engine.head is None else engine.head.config.labels
    return SimpleNamespace(**{**raw, "id2label": dict(enumerate(labels))})


PATTERN = "model-rank-{rank}-part-{part}.safetensors"


def save_state(
    source: Path, target: Path, dtype: str, pattern: str | None, max_size: int | None
) -> list[Path]:
    """Writes all tensors of the model in the engine's dtype, and their index; returns the files.

    Args:
        source: The model: a directory or a GGUF file.
        pattern: Pattern of the files' names, with {part}.
        max_size: The most bytes of a file; a file with a single tensor may be larger.

    Raises:
        ConfigError: `pattern` gives all parts one name, or there is no such folder.
    """
    names = PATTERN if pattern is None else pattern
    if names.format(rank=0, part=0, pp_rank=0) == names.format(rank=0, part=1, pp_rank=0):
        raise ConfigError(f"pattern must have {{part}} in it, got {pattern!r}")
    if not target.is_dir():
        raise ConfigError(f"path must be a folder that exists, got {str(target)!r}")
    tensors, written, places = tensor_source(source), list[Path](), dict[str, str]()
    limit = max_size or 1 << 62
    part: dict[str, np.ndarray] = {}
    for name in sorted(tensors.names()):
        tensor = _read(tensors, name, dtype)
        if part and sum(one.nbytes for one in part.values()) + tensor.nbytes > limit:
            written.append(_write(part, target, names, len(written)))
            part = {}
        part[name] = tensor
        places[name] = names.format(rank=0, part=len(written), pp_rank=0)
    written.append(_write(part, target, names, len(written)))
    (target / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return written


def _read(tensors: TensorSource, name: str, dtype: str) -> np.ndarray:
    out = np.empty(tensors.shape(name), resolve_dtype(dtype))
    tensors.read_into(name, out)
    return out


def _write(part: dict[str, np.ndarray], target: Path, names: str, number: int) -> Path:
    path = target / names.format(rank=0, part=number, pp_rank=0)
    save_file(part, path, metadata={"format": "pt"})
    return path


RequestLogitsProcessor = Callable[..., Any]


class MoveDirectionality(Enum):
    """How a row of the batch moves; rows never do here."""

    UNIDIRECTIONAL = auto()
    SWAP = auto()


@dataclass(frozen=True)
class BatchUpdate:
    """What changed in the batch.

    Attributes:
        added: (row, params, prompt ids, output ids); the list of output ids grows in place.
        removed: Rows.
        moved: (row, row, how).
    """

    batch_size: int
    removed: Sequence[int]
    added: Sequence[tuple[int, SamplingParams, list[int] | None, list[int]]]
    moved: Sequence[tuple[int, int, MoveDirectionality]]


class LogitsProcessor(ABC):
    """A processor of a batch's logits [R, V]."""

    @classmethod  # noqa: B027  most processors need no check
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raises ValueError for params that the processor cannot work with."""

    @abstractmethod
    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None: ...

    @abstractmethod
    def apply(self, logits: Any) -> Any:
        """The edited logits; they may be edited in place."""

    @abstractmethod
    def is_argmax_invariant(self) -> bool:
        """Whether it never changes the most probable token; only vLLM asks this."""

    @abstractmethod
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Called before each `apply`; None if only output tokens are new."""


class AdapterLogitsProcessor(LogitsProcessor):
    """A processor that applies a function of each request's own to its logits [V]."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.req_info: dict[int, Callable[[Any], Any]] = {}

    @abstractmethod
    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """A function of (output ids, logits) or (prompt ids, output ids, logits), or None."""

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self.req_info, batch_update, self._bound)

    def _bound(
        self, params: SamplingParams, prompt: list[int] | None, output: list[int]
    ) -> Callable[[Any], Any] | None:
        function = self.new_req_logits_processor(params)
        if function is None:
            return None
        wants_prompt = len(inspect.signature(function).parameters) == 3
        return partial(function, *([prompt] if wants_prompt else []), output)

    def apply(self, logits: Any) -> Any:
        for row, function in self.req_info.items():
            logits[row] = function(logits[row])
        return logits


def process_dict_updates[T](
    req_entries: dict[int, T],
    batch_update: BatchUpdate | None,
    new_state: Callable[[SamplingParams, list[int] | None, list[int]], T | None],
) -> bool:
    """Updates a processor's state by row; returns whether anything changed."""
    if batch_update is None:
        return False
    before = dict(req_entries)
    for row in batch_update.removed:
        req_entries.pop(row, None)
    for row, params, prompt, output in batch_update.added:
        req_entries.pop(row, None)
        state = new_state(params, prompt, output)
        if state is not None:
            req_entries[row] = state
    for source, target, how in batch_update.moved:
        moved, replaced = req_entries.pop(source, None), req_entries.pop(target, None)
        if moved is not None:
            req_entries[target] = moved
        if replaced is not None and how is MoveDirectionality.SWAP:
            req_entries[source] = replaced
    return req_entries != before


class OneRequest:
    """The processors of one request as a function (prompt ids, output ids, logits [V])."""

    def __init__(self, processors: Sequence[LogitsProcessor], params: SamplingParams) -> None:
        self._processors, self._params = processors, params
        self._output: list[int] | None = None

    def __call__(self, prompt: list[int], output: list[int], logits: np.ndarray) -> np.ndarray:
        update = self._update(prompt, output)
        rows = _tensor(logits[None])
        for processor in self._processors:
            processor.update_state(update)
            rows = processor.apply(rows)
        edited: np.ndarray = np.asarray(rows, np.float32)[0]
        return edited

    def _update(self, prompt: list[int], output: list[int]) -> BatchUpdate | None:
        """Returns None if the sequence is that of the last call with one more token."""
        known = self._output
        if known is not None and len(output) == len(known) + 1 and output[:-1] == known:
            known.append(output[-1])
            return None
        self._output = list(output)
        added = [(0, self._params, prompt, self._output)]
        return BatchUpdate(batch_size=1, removed=[], added=added, moved=[])


def request_processor(
    classes: Sequence[type[LogitsProcessor]], params: SamplingParams, vllm_config: Any
) -> OneRequest:
    """Makes processors of these classes for one request.

    Raises:
        InvalidRequestError: A processor does not take these params.
    """
    for one in classes:
        try:
            one.validate_params(params)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
    return OneRequest([one(vllm_config, _device(), False) for one in classes], params)


@cache
def _torch() -> Any:
    with suppress(ImportError):
        return import_module("torch")
    return None


def _device() -> Any:
    torch = _torch()
    return SimpleNamespace(type="cpu", index=None) if torch is None else torch.device("cpu")


def _tensor(values: np.ndarray) -> Any:
    torch = _torch()
    return np.array(values) if torch is None else torch.tensor(values)
