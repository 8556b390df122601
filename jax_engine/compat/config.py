"""The classes of vLLM's `vllm.config` that settings of an engine here may hold."""

from dataclasses import dataclass
from typing import Literal


@dataclass(kw_only=True)
class PoolerConfig:
    """How a model's hidden states are pooled where a request does not say.

    Attributes:
        task: "embed", "classify", "token_embed", "token_classify"; None: by the model.
        pooling_type: "LAST" or "MEAN"; None: the last token's.
        use_activation: Classes as probabilities; normalised embeddings. None: as the task has it.
        dimensions: Of embeddings: keep this many numbers.
    """

    task: str | None = None
    pooling_type: str | None = None
    use_activation: bool | None = None
    dimensions: int | None = None


@dataclass(kw_only=True)
class ProfilerConfig:
    """Where `LLM.start_profile` writes: a trace by `jax.profiler`, whatever `profiler` names.

    Attributes:
        profiler: "torch" or "cuda" in vLLM; here both mean JAX's.
        torch_profiler_dir: The folder.
        delay_iterations: Steps before the trace begins.
        max_iterations: Steps in it; 0: until `stop_profile`.
    """

    profiler: Literal["torch", "cuda"] | None = None
    torch_profiler_dir: str = ""
    delay_iterations: int = 0
    max_iterations: int = 0
