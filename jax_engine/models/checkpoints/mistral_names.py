"""A checkpoint in Mistral's own format, by Hugging Face's names and in its order of rows.

Mistral's RoPE rotates rows 2i and 2i + 1 of a head of `wq` and `wk`, Hugging Face's rows i and
i + D/2. So the rows of these two are reordered. The first Mixtral's files have the matrices of all
experts as one, which are cut here.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.quantization.method import RawSource
from jax_engine.models.checkpoints.stored_dtypes import read_floats

_OUTER = {"tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head"}
_IN_LAYER = {
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
    "feed_forward.gate": "block_sparse_moe.gate",
    "block_sparse_moe.gate": "block_sparse_moe.gate",
}
_KINDS = {"qscale_weight": "weight_scale", "qscale_act": "input_scale"}
_LAYER = re.compile(r"layers\.(\d+)\.(.+)\.(\w+)")
_EXPERT = re.compile(r"(?:feed_forward|block_sparse_moe)\.(experts\.\d+\.w[123])")
_STACKED = re.compile(r"layers\.(\d+)\.block_sparse_moe\.(w[123])")


@dataclass(frozen=True)
class _Place:
    """Where a tensor is in the files.

    Attributes:
        heads: how many heads its rows are, if they are reordered.
        expert: which part of a matrix of all experts it is; and whether it is turned.
    """

    name: str
    heads: int = 0
    expert: int | None = None
    turned: bool = False


class MistralNames:
    """The tensors of a source by Hugging Face's names.

    Args:
        fields: the model's configuration, in Hugging Face's words.

    Raises:
        WeightsError: a matrix of all experts cannot be cut into so many.
    """

    def __init__(self, source: RawSource, fields: Mapping[str, Any]) -> None:
        self.location: Path = source.location
        self._source, self._fields = source, fields
        self._experts = int(fields.get("num_local_experts", 0))
        self._head_dim = int(fields["head_dim"])
        self._places: dict[str, _Place] = {}
        for name in source.names():
            self._places.update(self._found(name))

    def names(self) -> Collection[str]:
        return self._places.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        place = self._places[name]
        shape = self._source.shape(place.name)
        if place.expert is not None:
            shape = (shape[0] // self._experts, *shape[1:])
        return shape[::-1] if place.turned else shape

    def dtype(self, name: str) -> str:
        return self._source.dtype(self._places[name].name)

    def raw(self, name: str) -> np.ndarray:
        """The tensor as it is stored, but for the order of its rows. Thread-safe."""
        place = self._places[name]
        found = self._source.raw(place.name)
        if place.expert is not None:
            size = len(found) // self._experts
            found = found[place.expert * size : (place.expert + 1) * size]
        if place.heads and found.ndim and len(found) == place.heads * self._head_dim:
            pairs = found.reshape(place.heads, self._head_dim // 2, 2, *found.shape[1:])
            found = pairs.swapaxes(1, 2).reshape(found.shape)
        return found.T if place.turned else found

    def read_into(self, name: str, out: np.ndarray) -> None:
        read_floats(self, name, out)

    def describe(self, name: str) -> str:
        return self._source.describe(self._places[name].name)

    def _found(self, name: str) -> Iterator[tuple[str, _Place]]:
        """The names of a tensor of the files, and where they are."""
        stacked = _STACKED.fullmatch(name)
        if stacked is not None:
            yield from self._cut(name, stacked[1], stacked[2])
            return
        layer = _LAYER.fullmatch(name)
        if layer is None:
            module, _, kind = name.rpartition(".")
            yield f"{_OUTER.get(module, module)}.{kind}", _Place(name)
            return
        number, module, kind = layer[1], layer[2], _KINDS.get(layer[3], layer[3])
        expert = _EXPERT.fullmatch(module)
        own = f"block_sparse_moe.{expert[1]}" if expert else _IN_LAYER.get(module)
        if own is None:
            yield name, _Place(name)
            return
        rotated = {"attention.wq": "num_attention_heads", "attention.wk": "num_key_value_heads"}
        heads = int(self._fields[rotated[module]]) if module in rotated else 0
        yield f"model.layers.{number}.{own}.{kind}", _Place(name, heads)

    def _cut(self, name: str, layer: str, matrix: str) -> Iterator[tuple[str, _Place]]:
        rows = self._source.shape(name)[0] if self._source.shape(name) else 0
        if not self._experts or not rows or rows % self._experts:
            raise WeightsError(
                f"{self._source.describe(name)}: {rows} rows are not those of "
                f"{self._experts} experts (params.json: moe.num_experts)."
            )
        for expert in range(self._experts):
            own = f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{matrix}.weight"
            yield own, _Place(name, expert=expert, turned=matrix == "w2")
