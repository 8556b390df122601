"""Settings of `LLM.start_profile`: the folder that it writes to."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

VARIABLE = "VLLM_TORCH_PROFILER_DIR"  # vLLM's, for the same purpose
DEFAULT = "jax_profile"


@dataclass(frozen=True, kw_only=True)
class ProfilerConfig:
    """Settings of a trace, which `jax.profiler` always makes.

    Attributes:
        profiler: "torch" or "cuda" in vLLM; here both mean JAX's.
        torch_profiler_dir: The folder.
        delay_iterations: Steps before vLLM's trace begins; here it always begins at once.
        max_iterations: Steps in vLLM's trace; here it always ends with `stop_profile`.
    """

    profiler: Literal["torch", "cuda"] | None = None
    torch_profiler_dir: str = ""
    delay_iterations: int = 0
    max_iterations: int = 0


def profile_folder(config: ProfilerConfig | Mapping[str, Any] | None) -> str:
    """The engine's setting, else the environment variable's, else ./jax_profile."""
    given: Any = None
    if isinstance(config, Mapping):
        given = config.get("torch_profiler_dir")
    elif config is not None:
        given = config.torch_profiler_dir
    return str(given or os.environ.get(VARIABLE) or DEFAULT)
