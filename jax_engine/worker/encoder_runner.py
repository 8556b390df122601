"""The `Runner` of an encoder: whole prompts in, hidden states out, and no KV cache.

A step is one ragged batch, without padding between prompts of different lengths, so it does not
matter which prompts are computed together. The only padding is behind the last token, up to the
next of a few sizes for which a program is compiled. The kernels for a CPU skip it.
"""

import logging
from dataclasses import dataclass
from itertools import chain
from typing import Any, Never

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int
from tqdm import tqdm

from jax_engine.host_memory import give_back
from jax_engine.layers.batch import whole_sequences
from jax_engine.models.huge_pages import gather_in_background
from jax_engine.models.model_loader import LoadedModel
from jax_engine.operations import exact_products, this_device
from jax_engine.progress_log import compiling
from jax_engine.step import Capabilities, PreemptionCosts, RequestSetup, Step, StepResult
from jax_engine.worker.step_output import PooledStates, on_host, pool_states
from jax_engine.worker.step_shape import bucket

logger = logging.getLogger("jax_engine.compile")

FEWEST_TOKENS = 16  # of a compiled step; others have 32, 64, ..


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """A step that the device is computing, or has computed.

    Attributes:
        states: None for a step without rows.
        num_samples: How many tokens its requests end with.
        with_tokens: Whether the states of single tokens are wanted.
    """

    states: PooledStates | None
    num_samples: int
    with_tokens: bool


class EncoderRunner:
    """One device's encoder and its compiled steps.

    A request ends with one token, which nobody reads: it is always token 0.

    Args:
        max_num_seqs: The most prompts of a step.
        max_model_len: The longest prompt.
        dtype: The dtype of activations.

    Attributes:
        setups: The open requests' setups, by request number.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        max_num_seqs: int,
        max_model_len: int,
        dtype: DTypeLike,
        enforce_eager: bool = False,
    ) -> None:
        self.capabilities = Capabilities(
            model.config.vocab_size,
            block_size=max_model_len + 1,
            num_blocks=0,
            num_cpu_blocks=0,
            table_width=1,
            look_ahead_tokens=this_device().look_ahead_tokens,
        )
        self.setups: dict[int, RequestSetup] = {}
        self._max_num_seqs, self._dtype, self._eager = max_num_seqs, dtype, enforce_eager
        self._spec, self._programs = model.config.spec, dict[int, Any]()
        self.set_weights(model)

    def set_weights(self, model: LoadedModel) -> None:
        """Takes the weights of the model that it was built for; shapes do until they are loaded."""
        arrays = model.graphdef, model.params
        self._weights, self._structure = jax.tree.flatten(arrays)
        if this_device().in_host_memory and isinstance(self._weights[0], Array):
            gather_in_background(self._weights)

    def launch(self, step: Step) -> Ticket:
        """Starts a step without waiting for it."""
        self.setups.update([(setup.number, setup) for setup in step.opened])
        of_rows = [self.setups[row.request] for row in step.rows]
        states = self._start(step, of_rows) if step.rows else None
        with_tokens = any(setup.token_states for setup in of_rows)
        for number in step.closed:
            self.setups.pop(number, None)
        return Ticket(states, len(step.samples), with_tokens)

    def _start(self, step: Step, of_rows: list[RequestSetup]) -> PooledStates:
        lengths = [len(row.tokens) for row in step.rows]
        total = sum(lengths)
        size = _size(total)
        packed = np.zeros(self._length(size), np.int32)
        packed[:total] = list(chain.from_iterable(row.tokens for row in step.rows))
        starts = packed[size : size + self._num_rows(size) + 1]
        starts[1:] = total
        starts[1 : len(lengths) + 1] = np.cumsum(lengths)
        types = packed[size + len(starts) :]
        for start, setup in zip(starts, of_rows, strict=False):
            if setup.token_type_ids is not None:
                types[start : start + len(setup.token_type_ids)] = setup.token_type_ids
        if self._eager:
            found: PooledStates = self._function(size)(self._weights, jnp.asarray(packed))
        else:
            found = (self._programs.get(size) or self._prepare(size))(self._weights, packed)
        return found

    def _num_rows(self, size: int) -> int:
        """S of the program for so many tokens."""
        return min(size, self._max_num_seqs)

    def _length(self, size: int) -> int:
        """Numbers that the host sends: tokens, where each row starts, and the tokens' types."""
        return size + self._num_rows(size) + 1 + size * (self._spec.token_types is not None)

    def _prepare(self, size: int) -> Any:
        with compiling(logger, f"an encoder's step of {size} tokens"):
            return self._compile(size)

    def _compile(self, size: int) -> Any:
        packed = jax.ShapeDtypeStruct((self._length(size),), jnp.int32)
        jitted = jax.jit(self._function(size), compiler_options=this_device().compiler_options)
        program = self._programs[size] = jitted.lower(self._weights, packed).compile()
        give_back()
        return program

    def _function(self, size: int) -> Any:
        """The step of so many tokens, and the arrays that it takes."""

        def step(weights: list[Array], packed: Int[Array, " P"]) -> PooledStates:
            with exact_products(self._dtype):
                return self._step(size, weights, packed)

        return step

    def _step(self, size: int, weights: list[Array], packed: Int[Array, " P"]) -> PooledStates:
        graphdef, params = jax.tree.unflatten(self._structure, weights)
        model, rows = nnx.merge(graphdef, params), self._num_rows(size)
        starts, types = packed[size : size + rows + 1], packed[size + rows + 1 :]
        known = None if self._spec.token_types is None else types
        batch = whole_sequences(self._spec.attentions, starts, size, known)
        hidden = self._hidden(model, packed[:size], batch)
        return pool_states(hidden, starts)

    def _hidden(self, model: Any, token_ids: Any, batch: Any) -> Float[Array, "T E"]:
        kv, heads, size = self._spec.cached
        nothing = jnp.zeros((0, kv, 0, heads, 1, size), self._dtype)  # a decoder's cache is here
        hidden: Array = model(token_ids, batch, nothing)[0]
        return hidden

    def collect(self, ticket: Ticket) -> StepResult:
        """Waits for a step and brings its states to the host."""
        hidden = None
        if ticket.states is not None:
            hidden = on_host(ticket.states, with_tokens=ticket.with_tokens)
        return StepResult([0] * ticket.num_samples, hidden=hidden)

    def recover(self) -> None:
        """Forgets all requests after a failure."""
        self.setups.clear()

    def compile_ahead(
        self, max_num_batched_tokens: int, max_num_seqs: int, *, use_tqdm: bool = True
    ) -> int:
        """Compiles what steps within these limits need; returns how many were missing."""
        del max_num_seqs
        sizes = [FEWEST_TOKENS]
        while sizes[-1] < max_num_batched_tokens:
            sizes.append(2 * sizes[-1])
        missing = [] if self._eager else [one for one in sizes if one not in self._programs]
        for size in tqdm(missing, desc="Compiling steps", disable=not use_tqdm):
            self._compile(size)
        return len(missing)

    def host_room(self, blocks: list[int]) -> bool:
        """There is nothing to swap."""
        return not blocks

    def measure_costs(self) -> PreemptionCosts:
        """Nothing is preempted."""
        return PreemptionCosts(0.0, 0.0)

    def logits(self, ticket: Ticket) -> Never:
        """No step is masked: nothing is drawn."""
        raise NotImplementedError("an encoder has no logits")

    def sample(self, ticket: Ticket, allowed: Any, processed: Any) -> Never:
        """As `logits`."""
        raise NotImplementedError("an encoder draws no tokens")


def _size(num_tokens: int) -> int:
    """T of the program for a step of so many tokens."""
    return bucket(num_tokens, (FEWEST_TOKENS,))
