"""vLLM's classes and functions that its programs import, where this engine's own would not do.

`LLM` and `EngineArgs` are this engine's, where vLLM's programs mean something else by the same
word. `FlexibleArgumentParser` is argparse, with more ways to write an option.
Tokenizers and chat templates are those of transformers, as vLLM's functions give them. The small
functions are those that vLLM's examples import beside the engine.
"""

import argparse
import gc
import logging
import socket
import sys
import uuid
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from jax_engine.config.engine_args import EngineArgs as Arguments
from jax_engine.config.vllm_spelling import spelled_out
from jax_engine.engine.startup.reload import collective_rpc
from jax_engine.engine.vllm_parts import PATTERN
from jax_engine.llm import LLM as Engine
from jax_engine.operations import this_device

if TYPE_CHECKING:
    from huggingface_hub import HfApi


class FlexibleArgumentParser(argparse.ArgumentParser):
    """Options may be written as vLLM's users write them (`jax_engine.config.vllm_spelling`)."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        given = sys.argv[1:] if args is None else args
        return super().parse_known_args(spelled_out(self, given), namespace)

    @staticmethod
    def check_port(value: str) -> int:
        """The type of an option that is a port, from 1024 on.

        Raises:
            argparse.ArgumentTypeError: It is none.
        """
        if not value.isdecimal() or not 1024 <= int(value) <= 65535:
            raise argparse.ArgumentTypeError(f"must be a port from 1024 to 65535, got {value!r}")
        return int(value)


def get_tokenizer(
    tokenizer_name: str | Path,
    *args: Any,
    tokenizer_mode: str = "auto",
    trust_remote_code: bool = False,
    revision: str | None = None,
    download_dir: str | None = None,
    **kwargs: Any,
) -> Any:
    """The tokenizer of a directory or of the hub, of transformers' own class.

    Raises:
        ValueError: `tokenizer_mode` names a tokenizer of another library.
    """
    from transformers import AutoTokenizer

    if tokenizer_mode not in ("auto", "hf", "slow"):
        raise ValueError(f"tokenizer_mode must be 'auto', 'hf' or 'slow', got {tokenizer_mode!r}")
    return AutoTokenizer.from_pretrained(
        tokenizer_name,
        *args,
        use_fast=tokenizer_mode != "slow",
        trust_remote_code=False,  # no code of a checkpoint is ever run
        revision=revision,
        cache_dir=download_dir,
        **kwargs,
    )


def resolve_chat_template(
    tokenizer: Any,
    chat_template: str | None,
    tools: list[dict[str, Any]] | None,
    **_: Any,
) -> str | None:
    """The template that was given, else the tokenizer's own for these tools; None: it has none."""
    if chat_template is not None:
        return chat_template
    try:
        template: str = tokenizer.get_chat_template(chat_template, tools=tools)
    except ValueError:  # transformers' word for none
        return None
    return template


resolve_hf_chat_template = resolve_chat_template  # its name until vLLM 0.13


def init_logger(name: str) -> logging.Logger:
    return logging.getLogger(name)


def random_uuid() -> str:
    """32 hexadecimal digits."""
    return uuid.uuid4().hex


def print_embeddings(embeds: Sequence[float], prefix: str = "Embeddings") -> None:
    """The first four numbers of a vector, and how many it has."""
    shown = ", ".join(str(value) for value in embeds[:4])
    more = ", ..." if len(embeds) > 4 else ""
    print(f"{prefix}: [{shown}{more}] (size={len(embeds)})")


def get_open_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


def get_ip() -> str:
    """This machine's address; 127.0.0.1 where it has no other."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def cleanup_dist_env_and_memory(shutdown_ray: bool = False) -> None:
    """Frees the memory of engines that nobody holds any more; there are no other processes."""
    gc.collect()


def hf_api() -> "HfApi":
    """The hub, as `huggingface_hub` asks it."""
    from huggingface_hub import HfApi  # slow to import

    return HfApi()


class Platform:
    """What computes here, as vLLM's programs ask for it."""

    @property
    def device_type(self) -> str:
        return "cuda" if self.is_cuda() else self._platform()

    def _platform(self) -> str:
        return this_device().platform

    def is_cuda(self) -> bool:
        return self._platform() == "gpu"

    def is_cuda_alike(self) -> bool:
        return self.is_cuda()

    def is_cpu(self) -> bool:
        return self._platform() == "cpu"

    def is_rocm(self) -> bool:
        return False

    def is_tpu(self) -> bool:
        return self._platform() == "tpu"

    def is_xpu(self) -> bool:
        return False


current_platform = Platform()

TokenizerLike = AnyTokenizer = Any  # for annotations


def make_tool_call_id(id_type: str = "random", func_name: str = "", idx: int = 0) -> str:
    """A new id of a call; "kimi_k2": as that model's."""
    return f"functions.{func_name}:{idx}" if id_type == "kimi_k2" else f"call_{uuid.uuid4().hex}"


VllmConfig = SimpleNamespace  # what `LLMEngine.vllm_config` is, for annotations


class ShardedStateLoader:
    """Names of the files that `LLMEngine.save_sharded_state` writes."""

    DEFAULT_PATTERN = TP_ONLY_PATTERN = PATTERN
    PP_AND_TP_PATTERN = "model-pp-{pp_rank}-rank-{rank}-part-{part}.safetensors"


class LLM(Engine):
    """`jax_engine.LLM`, but for three things.

    `encode` gives PyTorch tensors where PyTorch is installed; without it NumPy arrays, as ever.
    `enforce_eager` is about CUDA graphs in vLLM, and many of its programs set it to start sooner:
    here steps are compiled all the same, since operation by operation they take many times as long.
    `collective_rpc` knows the methods of vLLM's workers that `engine.startup.reload` has.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        super().__init__(model, **(settings | {"enforce_eager": False}))

    def collective_rpc(
        self,
        method: Any,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[None]:
        """See `jax_engine.engine.startup.reload.collective_rpc`; returns None for each device.

        Args:
            timeout: Is not heeded: each method ends.
        """
        each = self._calls.of_each(
            lambda engine: collective_rpc(engine, method, tuple(args), kwargs)
        )
        return [None] * (len(each) * self.llm_engine.config.world_size)

    def encode(self, *args: Any, **options: Any) -> list[Any]:
        """As `jax_engine.LLM.encode`."""
        outputs: list[Any] = super().encode(*args, **options)
        if find_spec("torch") is not None:
            from_numpy = import_module("torch").from_numpy
            for output in outputs:
                output.outputs.data = from_numpy(output.outputs.data)
        return outputs


class EngineArgs(Arguments):
    """`jax_engine.EngineArgs`, whose `enforce_eager` is that of `LLM` above."""

    def settings(self) -> dict[str, Any]:
        """As `jax_engine.EngineArgs.settings`."""
        return super().settings() | {"enforce_eager": False}


AsyncEngineArgs = EngineArgs  # there is nothing that only they could say
