"""The sampler as programs of its own: the second half of steps that end with the logits."""

import dataclasses
import logging
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from jax_engine.host_memory import give_back
from jax_engine.operations import device_operations, this_device
from jax_engine.progress_log import compiling
from jax_engine.sampling.asks import Asks
from jax_engine.sampling.inputs import ROW_WIDTH, PackedSampling, SamplingInputs
from jax_engine.sampling.sampler import SamplerOutput, sample
from jax_engine.worker.step_output import Unsampled

logger = logging.getLogger("jax_engine.compile")


class SamplerPrograms:
    """One program for each kind of arguments, compiled when it is first needed.

    Args:
        max_rows: M, the number of tokens that every step returns.
        enforce_eager: Run operation by operation without compiling.
        batch_invariant: As in `make_batch`; log-probabilities are, drawn tokens are not.
    """

    def __init__(
        self, max_rows: int, *, enforce_eager: bool = False, batch_invariant: bool = False
    ) -> None:
        self.max_rows, self.enforce_eager = max_rows, enforce_eager
        self.batch_invariant = batch_invariant
        self.branches_wait = this_device().branches_wait
        self.programs: dict[Any, Any] = {}

    def __call__(
        self,
        unsampled: Unsampled,
        processed: Float[Array, "R V"] | np.ndarray | None,
        allowed: np.ndarray | None,
        asks: Asks | None = None,
    ) -> SamplerOutput:
        """Draws the tokens without waiting for them. `sampling.sample` documents the arguments.

        Args:
            asks: What the rows ask for; left to the device where its branches make nobody wait.
        """
        asks = asks if self.branches_wait else None
        leaves, structure = jax.tree.flatten((unsampled, processed, allowed))
        if self.enforce_eager:
            return self._finish(structure, asks, [jnp.asarray(leaf) for leaf in leaves])
        sampled: SamplerOutput = self._program(structure, asks, leaves)(leaves)
        return sampled

    def prepare(self, rows: int, vocab_size: int, asks: Asks | None) -> Any:
        """The program for rows whose logits nobody edits, compiled."""
        settings, position = jnp.zeros((rows, ROW_WIDTH), jnp.int32), jnp.zeros(rows, jnp.int32)
        nothing = jnp.zeros((3, 0), jnp.int32)
        packed = PackedSampling(settings, position, nothing, nothing)
        leaves, structure = jax.tree.flatten((Unsampled(jnp.zeros((rows, 1)), packed), None, None))
        leaves[0] = jax.ShapeDtypeStruct((rows, vocab_size), jnp.float32)  # not allocated
        return self._program(structure, asks, leaves)

    def _program(
        self, structure: jax.tree_util.PyTreeDef, asks: Asks | None, leaves: list[Any]
    ) -> Any:
        key = structure, asks, *[leaf.shape for leaf in leaves]
        program = self.programs.get(key)
        if program is None:
            with compiling(logger, f"the sampling of {leaves[0].shape[0]} rows"):
                finish = partial(self._finish, structure, asks)
                jitted = jax.jit(finish, compiler_options=this_device().compiler_options)
                program = self.programs[key] = jitted.lower(leaves).compile()
                give_back()
        return program

    def _finish(
        self, structure: jax.tree_util.PyTreeDef, asks: Asks | None, leaves: list[Array]
    ) -> SamplerOutput:
        unsampled, processed, allowed = jax.tree.unflatten(structure, leaves)
        inputs = unsampled.sampling.unpacked(asks)
        return self.sample(unsampled.logits, inputs, processed, allowed)

    def sample(
        self,
        logits: Float[Array, "R V"],
        inputs: SamplingInputs,
        processed: Float[Array, "R V"] | None = None,
        allowed: UInt32[Array, "R words"] | None = None,
    ) -> SamplerOutput:
        """Samples, and pads the tokens to M so that the next step accepts them from any shape."""
        ours = device_operations(self.batch_invariant)
        sampled = sample(
            logits, inputs, processed, allowed, draw=ours.draw, logsumexp=ours.logsumexp
        )
        tokens = jnp.pad(sampled.token_ids, (0, self.max_rows - logits.shape[0]))
        return dataclasses.replace(sampled, token_ids=tokens)
