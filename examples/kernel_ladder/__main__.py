"""Runs every rung on one small step, and prints how much work each is on large ones."""

import jax.numpy as jnp
import numpy as np

from examples.kernel_ladder import RUNGS
from examples.kernel_ladder.work import SHAPES, work


def main() -> None:
    rng = np.random.default_rng(0)
    q = jnp.asarray(rng.standard_normal((2, 8, 64)), jnp.float32)
    cache = jnp.asarray(rng.standard_normal((2, 20, 2, 16, 64)), jnp.float32)
    tables = jnp.asarray(rng.permutation(20).reshape(2, 10), jnp.int32)
    lens = jnp.array([150, 37], jnp.int32)
    first = RUNGS[0](q, cache, tables, lens, scale=0.125)
    columns = [f"{shape.seqs} x {shape.context}" for shape in SHAPES]
    print(
        f"{'rung':20} {'error':>8}"
        + "".join(f" | {column:>10}: GB, programs" for column in columns)
    )
    for rung in RUNGS:
        error = float(jnp.abs(rung(q, cache, tables, lens, scale=0.125) - first).max())
        print(f"{rung.__name__:20} {error:8.0e}", end="")
        for shape in SHAPES if rung.__name__ != "shipped" else ():
            count = work(rung.__name__, shape)
            print(f" | {count.moved / 1e9:14.2f} {count.programs or '-':>11}", end="")
        print()


if __name__ == "__main__":
    main()
