"""The small functions of vLLM's that its examples import beside the engine."""

import gc
import logging
import socket
import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from jax_engine.engine.saved_state import PATTERN
from jax_engine.operations import this_device

if TYPE_CHECKING:
    from huggingface_hub import HfApi


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

VllmConfig = SimpleNamespace  # what `LLMEngine.vllm_config` is, for annotations


class ShardedStateLoader:
    """Names of the files that `LLMEngine.save_sharded_state` writes."""

    DEFAULT_PATTERN = TP_ONLY_PATTERN = PATTERN
    PP_AND_TP_PATTERN = "model-pp-{pp_rank}-rank-{rank}-part-{part}.safetensors"
