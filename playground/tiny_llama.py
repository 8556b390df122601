"""A Llama in plain lists, whose keys and values lie in blocks: it runs in a page, without NumPy.

It computes what `reference.transformer` computes, in float64 (a test compares all logits), with
weights that `scripts/tutorial/train_tiny_llama.py` has trained on little stories. Each sum is taken
in the order of positions, wherever their blocks lie.

>>> memory = BlockMemory(num_blocks=3, block_size=4)
>>> model = TinyLlama()
>>> logits = model.logits(model.forward(model.token_ids("once there was"), 0, [2], memory))
>>> model.words[logits.index(max(logits))]
'a'
"""

import base64
import json
import math
import struct
from array import array
from collections.abc import Sequence
from functools import cache
from operator import mul
from pathlib import Path
from typing import Any

Vector = list[float]
Matrix = list[Vector]
FILE = Path(__file__).with_name("tiny_llama.json")
EPS, THETA = 1e-5, 10000.0
NOTHING = math.nan  # in a slot that nobody wrote


class BlockMemory:
    """Keys and values: `blocks[b][layer][0 or 1][slot]` is a vector of all KV heads' numbers."""

    def __init__(self, *, num_blocks: int, block_size: int) -> None:
        sizes = read_file()["sizes"]
        width, layers = sizes["kv_heads"] * sizes["head_dim"], sizes["layers"]
        self.block_size = block_size
        self.blocks = [
            [[[[NOTHING] * width for _ in range(block_size)] for _ in "kv"] for _ in range(layers)]
            for _ in range(num_blocks)
        ]

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Pairs of (source, destination). All are read before any is written."""
        contents = [_copied(self.blocks[source]) for source, _ in pairs]
        for (_, destination), content in zip(pairs, contents, strict=True):
            self.blocks[destination] = content

    def fill(self, block: int, number: float) -> None:
        """Every key and value of a block becomes this number."""
        for layer in self.blocks[block]:
            for slots in layer:
                slots[:] = [[number] * len(slot) for slot in slots]

    def write(
        self, layer: int, table: Sequence[int], position: int, key: Vector, value: Vector
    ) -> None:
        block, slot = table[position // self.block_size], position % self.block_size
        self.blocks[block][layer][0][slot] = key
        self.blocks[block][layer][1][slot] = value

    def read(self, layer: int, table: Sequence[int], count: int) -> tuple[Matrix, Matrix]:
        """Keys and values of positions 0 .. count-1."""
        places = [divmod(position, self.block_size) for position in range(count)]
        keys = [self.blocks[table[logical]][layer][0][slot] for logical, slot in places]
        values = [self.blocks[table[logical]][layer][1][slot] for logical, slot in places]
        return keys, values


class TinyLlama:
    """The decoder; `forward` makes the last token's hidden state, `logits` makes logits of it."""

    def __init__(self) -> None:
        found = read_file()
        self.sizes: dict[str, int] = found["sizes"]
        self.words: list[str] = found["words"]
        self.weights = {name: matrix(one) for name, one in found["matrices"].items()}
        self.norms: dict[str, Vector] = found["norms"]
        half = self.sizes["head_dim"] // 2
        self.frequencies = [_float32(THETA ** (-i / half)) for i in range(half)]

    def token_ids(self, text: str) -> list[int]:
        """Raises ValueError for a word that the model does not know."""
        unknown = [word for word in text.split() if word not in self.words]
        if unknown:
            raise ValueError(f"the model does not know {', '.join(dict.fromkeys(unknown))}")
        return [self.words.index(word) for word in text.split()]

    def forward(
        self, token_ids: Sequence[int], start: int, table: Sequence[int], memory: BlockMemory
    ) -> Vector:
        """Tokens at positions start, start+1, ..: writes their keys and values into the table."""
        x: Vector = []
        for position, token in enumerate(token_ids, start):
            x = self.weights["embed"][token]
            for layer in range(self.sizes["layers"]):
                x = self._layer(layer, x, position, table, memory)
        return _norm(x, self.norms["norm"])

    def logits(self, hidden: Vector) -> Vector:
        """The matrix of the embedding makes the logits, too."""
        return _times(self.weights["embed"], hidden)

    def _layer(
        self, layer: int, x: Vector, position: int, table: Sequence[int], memory: BlockMemory
    ) -> Vector:
        normed = _norm(x, self.norms[f"{layer}.attention"])
        q, k, v = (_times(self.weights[f"{layer}.{name}"], normed) for name in "qkv")
        memory.write(layer, table, position, self._turn(k, position), v)
        keys, values = memory.read(layer, table, position + 1)
        attended = self._attend(self._turn(q, position), keys, values)
        x = _plus(x, _times(self.weights[f"{layer}.o"], attended))
        normed = _norm(x, self.norms[f"{layer}.mlp"])
        gates = _times(self.weights[f"{layer}.gate"], normed)
        up = _times(self.weights[f"{layer}.up"], normed)
        hidden = [gate / (1 + math.exp(-gate)) * one for gate, one in zip(gates, up, strict=True)]
        return _plus(x, _times(self.weights[f"{layer}.down"], hidden))

    def _attend(self, q: Vector, keys: Matrix, values: Matrix) -> Vector:
        """Equation 4 of the paper for each head: all keys, in the order of positions."""
        size, heads = self.sizes["head_dim"], self.sizes["heads"]
        group = heads // self.sizes["kv_heads"]
        out: Vector = []
        for head in range(heads):
            mine = q[head * size : (head + 1) * size]
            part = slice(head // group * size, (head // group + 1) * size)
            scores = [sum(map(mul, mine, key[part])) / math.sqrt(size) for key in keys]
            largest = max(scores)
            weights = [math.exp(score - largest) for score in scores]
            total = sum(weights)
            columns = zip(*(value[part] for value in values), strict=True)
            out += [sum(map(mul, weights, column)) / total for column in columns]
        return out

    def _turn(self, x: Vector, position: int) -> Vector:
        """Rotary embedding: each head's halves are the two axes (`reference.rope`)."""
        size, half = self.sizes["head_dim"], self.sizes["head_dim"] // 2
        angles = [_float32(position * frequency) for frequency in self.frequencies]
        turns = [(math.cos(angle), math.sin(angle)) for angle in angles]
        out: Vector = []
        for start in range(0, len(x), size):
            first, second = x[start : start + half], x[start + half : start + size]
            points = list(zip(first, second, turns, strict=True))
            out += [a * cos - b * sin for a, b, (cos, sin) in points]
            out += [b * cos + a * sin for a, b, (cos, sin) in points]
        return out


@cache
def read_file() -> Any:
    return json.loads(FILE.read_text("utf-8"))


def matrix(stored: dict[str, Any]) -> Matrix:
    """A matrix of 8-bit numbers, with a scale for each row.

    >>> matrix({"scales": [0.5, 2.0], "codes": base64.b64encode(bytes([1, 2, 3, 255])).decode()})
    [[0.5, 1.0], [6.0, -2.0]]
    """
    codes, scales = array("b", base64.b64decode(stored["codes"])), stored["scales"]
    width = len(codes) // len(scales)
    rows = [codes[row * width : (row + 1) * width] for row in range(len(scales))]
    return [[scale * code for code in row] for scale, row in zip(scales, rows, strict=True)]


def log_softmax(logits: Vector) -> Vector:
    """
    >>> [round(x, 4) for x in log_softmax([0.0, math.log(3)])]
    [-1.3863, -0.2877]
    """
    largest = max(logits)
    total = math.log(sum(math.exp(x - largest) for x in logits))
    return [x - largest - total for x in logits]


def _times(rows: Matrix, x: Vector) -> Vector:
    return [sum(map(mul, row, x)) for row in rows]


def _plus(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def _norm(x: Vector, weight: Vector) -> Vector:
    scale = 1 / math.sqrt(sum(map(mul, x, x)) / len(x) + EPS)
    return [number * scale * one for number, one in zip(x, weight, strict=True)]


def _float32(x: float) -> float:
    return float(struct.unpack("f", struct.pack("f", x))[0])


def _copied(block: list[list[Matrix]]) -> list[list[Matrix]]:
    return [[[list(slot) for slot in slots] for slots in layer] for layer in block]
