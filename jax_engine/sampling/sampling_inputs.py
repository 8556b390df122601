"""The sampler's inputs as arrays, and the packed rows that the host builds them from.

`Asks` says which sampler stages any row of the step needs. The host knows this before the step
starts. `lax.cond` on a GPU makes the host wait until the device knows the branch. By then the model
ran, and no time is left in which the host could plan the next step. So the host says which parts of
the sampler are needed, and each combination is a program of its own. On a CPU the device decides.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Int32, UInt32

from jax_engine.sampling_params import SamplingParams, sampler_numbers

CANDIDATES = 256  # of the largest logits, among which the filters look for their thresholds first


class SamplerStages(NamedTuple):
    """Whether any row asks for a part of the sampler.

    Attributes:
        draws: A token that is drawn, not the most probable one.
        deviation: Top-n-sigma.
        shortlist: Top-k or top-p.
        long_list: A top-k above `CANDIDATES`.
        nucleus: Top-p.
        logprobs: Log-probabilities.
    """

    draws: bool = False
    deviation: bool = False
    shortlist: bool = False
    long_list: bool = False
    nucleus: bool = False
    logprobs: bool = False


ALL_STAGES = SamplerStages(*[True] * len(SamplerStages._fields))
# What most requests ask for: compiled ahead.
USUAL = (
    SamplerStages(),
    SamplerStages(draws=True),
    SamplerStages(draws=True, shortlist=True, nucleus=True),
)


def branch[T](
    known: bool | None,
    found: Callable[[], Bool[Array, ""]],
    yes: Callable[[], T],
    no: Callable[[], T],
) -> T:
    """The result of `yes` or of `no`: as the host knows; where it does not (None), as found."""
    if known is None:
        result: T = lax.cond(found(), yes, no)
        return result
    return yes() if known else no()


# The int32 words of a packed row: two for the seed, the integers, then the bits of the floats.
NUMBERS = sampler_numbers(SamplingParams)
SEED_WORDS = 2
INTEGERS = (*(name for name, number in NUMBERS.items() if number.is_integer), "want_logprobs")
FLOATS = tuple(name for name, number in NUMBERS.items() if not number.is_integer)
ROW_WIDTH = SEED_WORDS + len(INTEGERS) + len(FLOATS)
# Values of `want_logprobs`; 0 for none
WANTS_RAW, WANTS_PROCESSED = 1, 2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SamplingInputs:
    """R rows, one a sampled token. Padding rows are greedy.

    Each of NUMBERS is a field of the same name, with its packed value.

    Attributes:
        seed: The 64 bits of the request's seed (of its i-th sample), high word first.
        position: Number of tokens before the sampled one. The draw depends on it and the seed.
        top_k: 0 for all.
        want_logprobs: WANTS_RAW for log-probabilities of the raw logits, WANTS_PROCESSED for those
            of the edited and tempered logits (beam search), 0 for none.
        temperature: 0 for greedy.
        bias: Sparse (row, token, value) to add; padding has row R.
        history: Sparse (row, token, is_output) of rows with penalties; padding has row R.
        asks: What the rows ask for, where the host says it; None: the device finds out.
    """

    seed: UInt32[Array, "R 2"]
    position: Int[Array, "R"]
    top_k: Int[Array, "R"]
    want_logprobs: Int[Array, "R"]
    temperature: Float[Array, "R"]
    top_p: Float[Array, "R"]
    min_p: Float[Array, "R"]
    top_n_sigma: Float[Array, "R"]
    presence_penalty: Float[Array, "R"]
    frequency_penalty: Float[Array, "R"]
    repetition_penalty: Float[Array, "R"]
    bias_row: Int[Array, "NB"]
    bias_token: Int[Array, "NB"]
    bias_value: Float[Array, "NB"]
    history_row: Int[Array, "NH"]
    history_token: Int[Array, "NH"]
    history_is_output: Int[Array, "NH"]
    asks: SamplerStages | None = field(default=None, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PackedSampling:
    """The inputs as the host sent them: four arrays, where `SamplingInputs` has seventeen."""

    rows: Int[Array, "R words"]
    position: Int[Array, "R"]
    bias: Int[Array, "3 NB"]
    history: Int[Array, "3 NH"]

    def unpacked(self, asks: SamplerStages | None = None) -> SamplingInputs:
        """The inputs, and what their rows ask for, where the host says it."""
        inputs = unpack_sampling(self.rows, self.position, self.bias, self.history)
        return replace(inputs, asks=asks)


def first_rows(inputs: SamplingInputs, rows: int) -> SamplingInputs:
    """The inputs of the first rows. Bias and history entries of other rows become padding."""
    not_of_rows = ("bias", "history", "asks")
    cut = {
        one.name: getattr(inputs, one.name)[:rows]
        for one in fields(inputs)
        if not one.name.startswith(not_of_rows)
    }
    return replace(inputs, **cut)


def row_fields() -> dict[str, slice]:
    """The slice of each field in a packed row."""
    names = (*INTEGERS, *FLOATS)
    places = {name: slice(at, at + 1) for at, name in enumerate(names, SEED_WORDS)}
    return {"seed": slice(0, SEED_WORDS)} | places


def sampling_row(params: SamplingParams, seed: int) -> Int32[np.ndarray, " words"]:
    """Packs the settings of one sample, which never change."""
    wants = 0
    if params.needs_logprobs:
        wants = WANTS_PROCESSED if params.use_beam_search else WANTS_RAW
    words = {name: number.packed(getattr(params, name)) for name, number in NUMBERS.items()}
    words["want_logprobs"] = wants
    high, low = (seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF
    return np.concatenate(
        [
            np.array([high, low], np.uint32).view(np.int32),
            np.array([words[name] for name in INTEGERS], np.int32),
            np.array([words[name] for name in FLOATS], np.float32).view(np.int32),
        ]
    )


def stages_needed(rows: Int32[np.ndarray, "R words"]) -> SamplerStages:
    """What packed rows ask of the sampler."""
    places, floats = row_fields(), rows.view(np.float32)
    draws = floats[:, places["temperature"]] > 0
    top_k = rows[:, places["top_k"]]
    nucleus = draws & (floats[:, places["top_p"]] < 1.0)
    return SamplerStages(
        draws=bool(draws.any()),
        deviation=bool((draws & (floats[:, places["top_n_sigma"]] > 0)).any()),
        shortlist=bool((draws & (top_k > 0) | nucleus).any()),
        long_list=bool((draws & (top_k > CANDIDATES)).any()),
        nucleus=bool(nucleus.any()),
        logprobs=bool((rows[:, places["want_logprobs"]] > 0).any()),
    )


def unpack_sampling(
    rows: Int[Array, "R words"],
    position: Int[Array, "R"],
    bias: Int[Array, "3 NB"],
    history: Int[Array, "3 NH"],
) -> SamplingInputs:
    """The inverse of `sampling_row`, on the device."""
    places = row_fields()
    words: dict[str, Any] = {name: rows[:, places[name].start] for name in INTEGERS}
    floats = lax.bitcast_convert_type(rows[:, places[FLOATS[0]].start :], jnp.float32)
    words |= {name: floats[:, at] for at, name in enumerate(FLOATS)}
    return SamplingInputs(
        seed=lax.bitcast_convert_type(rows[:, places["seed"]], jnp.uint32),
        position=position,
        **words,
        bias_row=bias[0],
        bias_token=bias[1],
        bias_value=lax.bitcast_convert_type(bias[2], jnp.float32),
        history_row=history[0],
        history_token=history[1],
        history_is_output=history[2],
    )
