"""Trains the Llama that speaks in a page, and writes playground/tiny_llama.json.

    python -m scripts.tutorial.train_tiny_llama

It takes some minutes on a CPU. The stories are drawn from a seed: an animal gets a name, a place, a
food and a friend, and what comes later repeats them. So the model has to look back over the whole
text, and a wrong key or value shows in what it says. The weights are rounded to 8 bits, with a
scale for each row of a matrix.
"""

import base64
import json
import math
import random
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from playground.tiny_llama import EPS, FILE, THETA

SEED, STEPS, ROWS, RATE = 0, 1500, 32, 5e-3
SIZES = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "hidden": 64}
NAMES = ["tom", "ann", "max", "lily", "ben", "ruby", "sam", "nina", "leo", "mia"]
ANIMALS = ["cat", "dog", "fox", "bear", "owl", "mouse", "frog", "horse"]
COLOURS = ["red", "grey", "white", "black", "brown", "golden"]
PLACES = ["house", "forest", "garden", "barn", "cave", "tower"]
FOODS = ["fish", "honey", "bread", "apples", "cheese", "nuts", "cake", "soup"]
END = "."

Weights = dict[str, jax.Array]


def story(rng: random.Random) -> list[str]:
    """Words of one story, of at most LONGEST."""
    one, other = rng.sample(NAMES, 2)
    animal, friend = rng.sample(ANIMALS, 2)
    colour, place = rng.choice(COLOURS), rng.choice(PLACES)
    food, more = rng.sample(FOODS, 2)
    start = rng.choice(("once there was", "there was once"))
    lived = rng.choice(("lived in", "slept in"))
    day = rng.choice(("one day", "one night", "in the morning"))
    met = rng.choice(("met", "saw"))
    ending = rng.choice(
        (
            f"so {one} and {other} ate {food} in the {place}",
            f"so {other} gave {one} some {food}",
            f"but {other} had only {more}",
        )
    )
    return (
        f"{start} a {colour} {animal} named {one} {END} {one} {lived} a {place} "
        f"and liked {food} {END} {day} {one} {met} a {friend} named {other} {END} "
        f"what do you like , asked the {friend} {END} i like {food} , said the {colour} {animal} "
        f"{END} {ending} {END} the end {END}"
    ).split()


def vocabulary() -> list[str]:
    """Every word of a thousand stories, END first."""
    rng = random.Random(SEED)
    found = {word for _ in range(1000) for word in story(rng)}
    return [END, *sorted(found - {END})]


def batches(words: list[str]) -> Iterator[np.ndarray]:
    """int32 [ROWS, n]: stories, padded with -1."""
    rng, number = random.Random(SEED + 1), {word: i for i, word in enumerate(words)}
    while True:
        rows = [[number[word] for word in story(rng)] for _ in range(ROWS)]
        yield np.array([row + [-1] * (64 - len(row)) for row in rows], np.int32)


def fresh(words: list[str]) -> Weights:
    """Matrices as [out, in], and norms of ones."""
    rng = np.random.default_rng(SEED)
    s = SIZES
    q, kv = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    width, hidden = s["width"], s["hidden"]
    shapes = {"embed": (len(words), width)}
    for layer in range(s["layers"]):
        its = {"q": (q, width), "k": (kv, width), "v": (kv, width), "o": (width, q)}
        its |= {"gate": (hidden, width), "up": (hidden, width), "down": (width, hidden)}
        shapes |= {f"{layer}.{name}": shape for name, shape in its.items()}
    made = {n: jnp.asarray(rng.normal(0, shape[1] ** -0.5, shape)) for n, shape in shapes.items()}
    norms = [f"{layer}.{part}" for layer in range(s["layers"]) for part in ("attention", "mlp")]
    return made | {name: jnp.ones(width) for name in (*norms, "norm")}


def forward(weights: Weights, tokens: jax.Array) -> jax.Array:
    """Logits [rows, n, V] of whole texts; a dense twin of `playground.tiny_llama`."""
    s = SIZES
    n, size = tokens.shape[1], s["head_dim"]
    frequencies = THETA ** (-jnp.arange(0, size, 2) / size)
    angles = jnp.arange(n)[:, None, None] * frequencies
    cos, sin = jnp.cos(angles), jnp.sin(angles)

    def norm(x: jax.Array, name: str) -> jax.Array:
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weights[name]

    def turned(x: jax.Array) -> jax.Array:
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x = weights["embed"][tokens]
    for layer in range(s["layers"]):
        normed = norm(x, f"{layer}.attention")
        q, k, v = (
            (normed @ weights[f"{layer}.{name}"].T).reshape(*tokens.shape, -1, size)
            for name in "qkv"
        )
        q, k = turned(q), turned(k)
        k, v = (jnp.repeat(one, s["heads"] // s["kv_heads"], 2) for one in (k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(size)
        scores = jnp.where(jnp.tri(n, dtype=bool), scores, -jnp.inf)
        out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
        x = x + out.reshape(*tokens.shape, -1) @ weights[f"{layer}.o"].T
        normed = norm(x, f"{layer}.mlp")
        gates = jax.nn.silu(normed @ weights[f"{layer}.gate"].T)
        x = x + (gates * (normed @ weights[f"{layer}.up"].T)) @ weights[f"{layer}.down"].T
    return norm(x, "norm") @ weights["embed"].T


def loss(weights: Weights, rows: jax.Array) -> jax.Array:
    """Mean surprise at each next word."""
    logits = jax.nn.log_softmax(forward(weights, jnp.maximum(rows[:, :-1], 0)))
    wanted, counts = jnp.maximum(rows[:, 1:], 0), rows[:, 1:] >= 0
    got = jnp.take_along_axis(logits, wanted[..., None], -1)[..., 0]
    return jnp.asarray(-(got * counts).sum() / counts.sum())


@jax.jit
def step(
    weights: Weights, mean: Weights, square: Weights, rows: jax.Array, i: jax.Array
) -> tuple[Weights, Weights, Weights, jax.Array]:
    """Adam, whose rate grows for 100 steps and falls to nothing at the end."""
    value, slope = jax.value_and_grad(loss)(weights, rows)
    rate = RATE * jnp.minimum((i + 1) / 100, 1.0) * (1 - i / STEPS)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slope)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, slope)

    def moved(w: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
        m, s = m / (1 - 0.9 ** (i + 1)), s / (1 - 0.99 ** (i + 1))
        return w - rate * m / (jnp.sqrt(s) + 1e-8)

    return jax.tree.map(moved, weights, mean, square), mean, square, value


def stored(weight: np.ndarray) -> dict[str, Any]:
    """A matrix in 8 bits, as `playground.tiny_llama.matrix` reads it."""
    scales = np.array([float(f"{one:.6g}") for one in np.abs(weight).max(1) / 127])
    codes = np.rint(weight / scales[:, None]).clip(-127, 127).astype(np.int8)
    return {"scales": scales.tolist(), "codes": base64.b64encode(codes.tobytes()).decode()}


def main() -> None:
    words = vocabulary()
    weights = fresh(words)
    mean = square = jax.tree.map(jnp.zeros_like, weights)
    for i, rows in zip(range(STEPS), batches(words), strict=False):
        weights, mean, square, value = step(weights, mean, square, rows, jnp.float32(i))
        if i % 100 == 0 or i == STEPS - 1:
            print(f"step {i}: loss {value:.4f}")
    arrays = {name: np.asarray(one, np.float64) for name, one in weights.items()}
    found = {
        "made_by": f"python -m scripts.tutorial.train_tiny_llama, seed {SEED}",
        "sizes": SIZES,
        "words": words,
        "norms": {n: np.round(one, 6).tolist() for n, one in arrays.items() if one.ndim == 1},
        "matrices": {name: stored(one) for name, one in arrays.items() if one.ndim == 2},
    }
    FILE.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{FILE.name}: {FILE.stat().st_size / 1000:.0f} kB, {len(words)} words")


if __name__ == "__main__":
    main()
