"""jax-engine's `LLMEngine` in this process, on a tiny random Llama.

    paged-conformance engine paged_conformance.adapters.jax_engine_llm:make
    paged-conformance engine paged_conformance.adapters.jax_engine_llm:crowded

`crowded` has so few blocks and so small steps that requests wait, are cut and preempt each other.
Compiled steps belong to an engine, so each factory makes one, and empties it between examples.
"""

from typing import Any

from paged_conformance.adapters import tiny_llama
from paged_conformance.adapters.vllm_shaped import SIZES, WORDS, VllmShaped


class JaxEngine(VllmShaped):
    """With a look at what is left."""

    def model(self) -> dict[str, Any]:
        sizes = tiny_llama.SIZES
        return {"config": sizes, "weights": str(tiny_llama.folder() / "weights.npz")}

    def state(self) -> dict[str, int]:
        stats = self.engine.stats()
        return {
            "waiting": stats.num_waiting,
            "running": stats.num_running,
            "swapped": stats.num_swapped,
            "used blocks": stats.num_used_blocks,
        }


class Factory:
    """`make`, with settings of `EngineConfig`.

    Steps of a new form are compiled within an example, which may take a minute where many share the
    cores: an example that is ended meanwhile leaves the engine in the middle of a step.

    Args:
        path: A checkpoint of one's own; None: the tiny Llama.
        sizes: What replaces the suite's sizes for another model.
    """

    example_seconds = 600.0

    def __init__(
        self, path: str | None = None, sizes: dict[str, int] | None = None, **settings: Any
    ) -> None:
        self.path, self.settings = path, settings
        self.capabilities = WORDS | {"state"} | ({"oracle_model"} if path is None else set())
        self.sizes = SIZES | {"quiet_steps": 2000, "patience": 300} | (sizes or {})
        self._engine: JaxEngine | None = None

    def __call__(self, *, prefix_cache: bool = True) -> JaxEngine:
        if self._engine is None:
            self._engine = self._made()
        engine = self._engine
        engine.abort(ids=list(engine.engine.scheduler.groups))
        while engine.is_busy():
            engine.step()
        engine.flush()
        return engine

    def _made(self) -> JaxEngine:
        import jax_engine
        from jax_engine.errors import JaxEngineError

        given = {
            "model": self.path or str(tiny_llama.folder()),
            "dtype": "float32",
            "max_model_len": self.sizes["max_len"],
            "scheduling_policy": "priority",
            "swap_space": 0.1,
            "block_size": 16,
            "num_gpu_blocks_override": 128,
            "max_num_seqs": 8,
        }
        config = jax_engine.EngineConfig(**(given | self.settings))
        engine = jax_engine.LLMEngine.from_config(config)
        return JaxEngine(engine, jax_engine, (JaxEngineError, ValueError, TypeError))


make = Factory()
crowded = Factory(
    block_size=4, num_gpu_blocks_override=40, max_num_seqs=4, max_num_batched_tokens=24
)
