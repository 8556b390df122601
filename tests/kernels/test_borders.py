"""GPU kernels, interpreted, where tiles, stages, splits and windows end.

Configurations are the smallest, so that small steps have all of these several times, and lengths
lie at their ends. Examples differ from run to run: `KERNELS_SEED` repeats those of a run.
"""

import pytest

from paged_conformance.kernel.sizes import Sizes
from pallas_kernels.device import interpreting
from pallas_kernels.tuning import (
    MosaicDecodeConfig,
    MosaicPrefillConfig,
    TritonDecodeConfig,
    TritonPrefillConfig,
)
from tests.kernels.holds import hold
from tests.kernels.tuned import Tuned

pytestmark = pytest.mark.skipif(not interpreting(), reason="sizes are those of an interpreter")

# One step is at most so many tokens of context; a Mosaic kernel takes 64 at a time, at least.
MOSAIC = Sizes(
    seqs=3, context=260, step=64, geometries=((16, 1, 2, 64),), dtype="bfloat16", examples=2
)
DECODES = Sizes(**vars(MOSAIC) | {"decode_only": True})
# Twelve queries of six heads are more rows than one warpgroup has.
TILES = Sizes(
    **vars(MOSAIC) | {"tokens": 16, "context": 200, "tile": 11, "geometries": ((16, 1, 6, 64),)}
)
TRITON = Sizes(
    tokens=40, seqs=5, context=100, tile=16, step=16, geometries=((8, 2, 3, 16),), examples=6
)
KERNELS = {
    "mosaic-decode-1-stage": (Tuned(DECODES, MosaicDecodeConfig(64, 1, 3)), "everything"),
    "mosaic-prefill-2-stages": (Tuned(TILES, MosaicPrefillConfig(64, 64, 2)), "everything"),
    "mosaic-prefill-ping-pong": (
        Tuned(TILES, MosaicPrefillConfig(128, 64, 2, ping_pong=True)),
        "everything",
    ),
    "triton-1": (
        Tuned(TRITON, TritonPrefillConfig(16, 16), TritonDecodeConfig(16, splits=3)),
        "everything",
    ),
    "triton-2": (
        Tuned(TRITON, TritonPrefillConfig(64, 16), TritonDecodeConfig(16, splits=7)),
        "lse",
    ),
}


@pytest.mark.parametrize(("kernel", "options"), KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.slow
def test_agrees_with_the_oracle(kernel: Tuned, options: str) -> None:
    hold(f"oracle-{options}", kernel)
