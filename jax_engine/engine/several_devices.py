"""What several devices that share a model do not compute yet."""

from jax_engine.config import EngineConfig
from jax_engine.errors import ConfigError


def check_shared(config: EngineConfig, *, batch_invariant: bool) -> None:
    """Refuses settings that need one device, before anything is read.

    Args:
        batch_invariant: Whether this device's kernels must be told of it.

    Raises:
        ConfigError: `tensor_parallel_size` is not 1 beside such a setting.
    """
    size, speculation = config.tensor_parallel_size, config.speculative_config
    if size == 1:
        return
    lacking = None
    if config.enable_lora:
        lacking = "enable_lora"
    elif speculation is not None and speculation.method == "draft_model":
        lacking = "a draft model (speculative_config)"
    elif batch_invariant:
        lacking = "batch_invariant on a GPU"
    if lacking is not None:
        raise ConfigError(
            f"tensor_parallel_size must be 1 with {lacking}, which several devices do not compute "
            f"yet, got {size}: leave one of them out"
        )
