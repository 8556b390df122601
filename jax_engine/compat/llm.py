"""`LLM` and `EngineArgs` where vLLM's programs mean something else by the same word."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from jax_engine.engine_args import EngineArgs as Arguments
from jax_engine.llm import LLM as Engine


class LLM(Engine):
    """`jax_engine.LLM`, but for two things.

    `encode` gives PyTorch tensors where PyTorch is installed; without it NumPy arrays, as ever.
    `enforce_eager` is about CUDA graphs in vLLM, and many of its programs set it to start sooner:
    here steps are compiled all the same, since operation by operation they take many times as long.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        super().__init__(model, **(settings | {"enforce_eager": False}))

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
