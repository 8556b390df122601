"""What devices say to each other in one run is counted in XLA's text."""

import jax
import jax.numpy as jnp
import pytest

from pallas_kernels.aot.collectives import ONE_SHOT, Collective, find_collectives

# As XLA prints the step of two devices: a loop of 32 layers, with its gathers inside of the turn,
# and what stands before and behind it, started and waited for.
STEP = """HloModule jit_step, is_scheduled=true, num_partitions=2

%add (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  ROOT %sum = bf16[] add(%a, %b)
}

%layer (state: (s32[], bf16[3,8])) -> (s32[], bf16[3,8]) {
  %o = f32[2,3,8]{2,1,0} all-gather(%bitcast.1), channel_id=1, dimensions={0}
  %inner = (s32[]) while(%zero), condition=%more, body=%turn, \
backend_config={"known_trip_count":{"n":"5"}}
  %down = f32[2,3,8]{2,1,0} all-gather(%bitcast.2), channel_id=1, dimensions={0}
  ROOT %tuple = (s32[], bf16[3,8]{1,0}) tuple(%i, %x)
}

%turn (i: (s32[])) -> (s32[]) {
  ROOT %permuted = (s32[]) collective-permute(%i), channel_id=4
}

ENTRY %main (ids: s32[3]) -> f32[3,90] {
  %embed = ((bf16[3,8]{1,0}), bf16[3,8]{1,0}) all-reduce-start(%rows), to_apply=%add
  %embedded = bf16[3,8]{1,0} all-reduce-done(%embed)
  %layers = (s32[], bf16[3,8]) while(%init), condition=%more, body=%layer, \
backend_config={"known_trip_count":{"n":"32"}}
  %logits = ((f32[3,45]{0,1}), f32[3,90]{0,1}) all-gather-start(%own), dimensions={1}
  ROOT %done = f32[3,90]{0,1} all-gather-done(%logits)
}
"""
KERNEL = """HloModule jit_step

ENTRY %main (x: f32[1024]) -> f32[1024] {
  %ours = (f32[1024]{0}, f32[4,1024]{1,0}, s32[1]{0}) custom-call(%x, %zeros), \
custom_call_target="mosaic_gpu_v2", backend_config={uses_xla_collective_metadata = true}
  %alone = (f32[1024]{0}, s32[1]{0}) custom-call(%x, %zeros), \
custom_call_target="mosaic_gpu_v2", backend_config={uses_xla_collective_metadata = false}
  ROOT %total = f32[1024]{0} get-tuple-element(%ours), index=0
}
"""


def test_loops_count_with_all_their_turns() -> None:
    assert find_collectives(STEP) == [
        Collective("all-gather", 2 * 32 + 1, 64 * 2 * 3 * 8 * 4 + 3 * 90 * 4),
        Collective("all-reduce", 1, 3 * 8 * 2),
        Collective("collective-permute", 32 * 5, 32 * 5 * 4),
    ]


def test_a_kernel_that_writes_to_other_devices_is_one_and_others_are_not() -> None:
    assert find_collectives(KERNEL) == [Collective(ONE_SHOT, 1, 4 * 1024 * 4)]


def test_a_loop_of_unknown_length_that_talks_is_refused() -> None:
    unknown = STEP.replace('"known_trip_count":{"n":"32"}', "")
    with pytest.raises(ValueError, match="no number of turns"):
        find_collectives(unknown)


def test_a_program_of_one_device_says_nothing() -> None:
    text = jax.jit(lambda x: x @ x).lower(jnp.zeros((4, 4))).compile().as_text()
    assert find_collectives(text) == []
