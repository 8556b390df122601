"""The cost model: Table 1's numbers, and steps in a row cost what they cost one by one."""

import pytest

from reference.cost_model import TABLE_1, StepCost, Work

SLOTS = {"OPT-13B": 15_700, "OPT-66B": 9_700, "OPT-175B": 60_100}


@pytest.mark.parametrize("name", SLOTS)
def test_slots_are_those_of_table_1(name: str) -> None:
    """Table 1 rounds the GB, so its 9.7K slots of OPT-66B are 1.5 % more than 21 GB hold."""
    assert TABLE_1[name].num_slots == pytest.approx(SLOTS[name], rel=0.02)


def test_every_part_of_a_step_costs() -> None:
    cost = StepCost(1.0, 0.1, 0.01, 0.001, 0.0001)
    assert cost.seconds(Work()) == 1.0
    assert cost.seconds(Work(2, 3, 5, 7)) == pytest.approx(1.0 + 0.2 + 0.03 + 0.005 + 0.0007)


def test_steps_in_a_row_are_the_sum_of_the_steps() -> None:
    cost = TABLE_1["OPT-66B"].step_cost()
    each = sum(cost.seconds(Work(7, 7, 1000 + 7 * i)) for i in range(50))
    assert cost.seconds(Work(7, 7, 1000), 50) == pytest.approx(each, rel=1e-12)


def test_paging_and_the_host_cost_and_gpus_talk() -> None:
    one, four = TABLE_1["OPT-13B"], TABLE_1["OPT-66B"]
    assert one.step_cost(paged=False).per_context_token < one.step_cost().per_context_token
    assert one.step_cost(block_size=1).per_context_token > one.step_cost().per_context_token
    assert one.step_cost().per_sequence > one.step_cost(host=False).per_sequence == 0.0
    alone = four.weights_gb * 1e9 / (4 * four.bytes_per_s)
    assert four.step_cost().per_step > alone


def test_small_blocks_are_slow_to_move() -> None:
    model = TABLE_1["OPT-13B"]
    seconds = [model.seconds_to_move(1024, size) for size in (1, 16, 256)]
    assert seconds[0] > 4 * seconds[1] > 4 * seconds[2]
    assert model.seconds_to_move(1, 16) == model.seconds_to_move(16, 16)
    assert model.seconds_to_recompute(200) == pytest.approx(2 * model.seconds_to_recompute(100))
