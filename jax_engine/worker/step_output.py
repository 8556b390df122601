"""The outputs of a compiled step, other than the new KV cache."""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

from jax_engine.models.decoder import Stream
from jax_engine.sampling.inputs import PackedSampling
from jax_engine.sampling.sampler import SamplerOutput
from jax_engine.worker.hidden_states import PooledStates


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Unsampled:
    """The result of a split step's first half: the sampler's inputs, still on the device."""

    logits: Float[Array, "R V"]
    sampling: PackedSampling


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepOutput:
    """The outputs of one step. Those that its shape does not request are None.

    Attributes:
        sampled: The sampler's output, one row a sampled token; None in a split step.
        unsampled: The sampler's inputs, in a split step only.
        prompt: Log-probabilities of the prompts' tokens, one row a token of the step.
        pooled: Hidden states, one row a sequence of the step.
        stream: What a stage hands on to the next; the last one has all of the above instead.
    """

    sampled: SamplerOutput | None = None
    unsampled: Unsampled | None = None
    prompt: SamplerOutput | None = None
    pooled: PooledStates | None = None
    stream: Stream | None = None
