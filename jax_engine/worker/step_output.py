"""What a compiled step computes beside the new KV cache."""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

from jax_engine.sampling.inputs import SamplingInputs
from jax_engine.sampling.sampler import SamplerOutput
from jax_engine.worker.hidden_states import PooledStates


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Unsampled:
    """The first half of a split step: what the sampler will need, still on the device."""

    logits: Float[Array, "R V"]
    inputs: SamplingInputs


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepOutput:
    """Parts that the step's shape does not ask for are None.

    Attributes:
        sampled: Of a step that samples, one row a sampled token.
        unsampled: Of a split step, in its place.
        prompt: Log-probabilities of the prompts' tokens, one row a token of the step.
        pooled: Hidden states, one row a sequence of the step.
    """

    sampled: SamplerOutput | None = None
    unsampled: Unsampled | None = None
    prompt: SamplerOutput | None = None
    pooled: PooledStates | None = None
