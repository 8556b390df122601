"""A call of `paged_attention` as every backend receives it: its arrays and its static options."""

from typing import NamedTuple

from jaxtyping import Array, Float, Int, Shaped


class Call(NamedTuple):
    """The arrays of a call, already checked; `paged_attention` explains them."""

    q: Float[Array, "T H D"]
    kv_cache: Shaped[Array, "L kv N K B D"]
    block_tables: Int[Array, "S W"]
    context_lens: Int[Array, " S"]
    query_start_loc: Int[Array, " S+1"]
    layer: Int[Array, ""]
    alibi_slopes: Float[Array, " H"] | None = None
    sinks: Float[Array, " H"] | None = None
    kv_scales: Float[Array, "L kv K"] | None = None
    window: Int[Array, ""] | None = None
    prompt_lens: Int[Array, " S"] | None = None

    @property
    def places(self) -> tuple[int, int]:
        """Where keys and values are along the cache's second axis: the same if it has size 1."""
        return 0, self.kv_cache.shape[1] - 1


class Options(NamedTuple):
    """The static options of a call; `paged_attention` explains them.

    A window that is an array is part of the `Call`, and None here.
    """

    scale: float
    window: int | None = None
    soft_cap: float | None = None
    return_lse: bool = False


def window_of(call: Call, options: Options) -> int | Int[Array, ""] | None:
    """The window of a call, whether it is an array or a number; None: there is none."""
    return options.window if call.window is None else call.window
