"""Weights that are read while the engine runs: again, or for the first time behind dummy ones.

vLLM's programs ask its workers for that: `collective_rpc("reload_weights")`. The weights come from
the files that the model came from, perhaps changed since. They must be of the same shapes and
formats, for which the steps are compiled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jax_engine.checks import shown
from jax_engine.config.engine_config import LONGEST, EngineConfig
from jax_engine.config.vllm_settings import LOAD_FORMATS
from jax_engine.engine.startup.build import open_files, settings_of_runners
from jax_engine.errors import ConfigError, JaxEngineError
from jax_engine.models.model_loader import LoadedModel

if TYPE_CHECKING:
    from jax_engine.engine.llm_engine import LLMEngine

_UPDATE = {"load_config": {"load_format": "..."}}


@dataclass(frozen=True)
class StoredWeights:
    """The weights of a model's files, which each process of a runner reads for itself.

    Attributes:
        config: The engine's settings, as the processes of runners get them.
    """

    config: EngineConfig

    def __call__(self) -> LoadedModel:
        """The model. Raises the errors of `open_model` and of `ModelFiles.load`."""
        return open_files(self.config).load()


def reload_weights(engine: "LLMEngine") -> None:
    """Reads the weights of the model's files, and forgets all cached blocks.

    For a moment there are two copies of the weights. After an error the old ones are used. A draft
    model, adapters and the tokenizer stay as they are.

    Raises:
        ConfigError: Requests are running, the model generates nothing, the engine has a folder of
            blocks, or the files have weights of other shapes or formats.
        ModelNotFoundError, WeightsError, OutOfMemoryError: The files cannot be read.
    """
    config = engine.config
    if engine.head is not None or engine.model_config.spec.is_encoder:
        raise _refused(f"a model that generates, got {engine.model_config.architecture}")
    if config.kv_cache_dir is not None:  # its files belong to the weights of the start
        raise _refused(f"kv_cache_dir=None, got {shown(config.kv_cache_dir)}")
    if engine.has_unfinished_requests() or not engine.reset_prefix_cache():
        raise _refused("an engine without requests, and some are running")
    if config.max_model_len == LONGEST:
        config = replace(config, max_model_len=engine.max_model_len)
    try:
        engine.worker.set_weights(StoredWeights(settings_of_runners(config)))
    except JaxEngineError:
        engine.worker.recover()  # a process refuses all other calls until then
        raise


def collective_rpc(
    engine: "LLMEngine", method: object, args: Sequence[Any] = (), kwargs: Any = None
) -> None:
    """Does what vLLM's method asks of its workers.

    Args:
        method: "reload_weights", or "update_config" with `{"load_config": {"load_format": ...}}`,
            which says how the next "reload_weights" reads.

    Raises:
        ConfigError: Another method, other arguments, or as `reload_weights`.
    """
    given = [*args, *(kwargs or {}).values()]
    if method == "reload_weights":
        if given:
            raise ConfigError(f"reload_weights takes no arguments here, got {shown(given)}")
        reload_weights(engine)
    elif method == "update_config":
        update = given[0] if len(given) == 1 else given
        engine.config = replace(engine.config, load_format=_load_format(update))
    else:
        raise ConfigError(
            f"collective_rpc: method must be 'reload_weights' or 'update_config', got "
            f"{shown(method)}: workers have no other methods of vLLM's"
        )


def _load_format(update: Any) -> Any:
    """What `update_config` is given. Raises ConfigError if it is anything else."""
    match update:
        case {"load_config": {"load_format": str(given), **others}, **more} if not others | more:
            return LOAD_FORMATS.get(given, given)
    raise ConfigError(f"update_config takes {_UPDATE} alone, got {shown(update)}")


def _refused(needed: str) -> ConfigError:
    return ConfigError(f"reload_weights needs {needed}")
