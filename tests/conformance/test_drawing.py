"""Records are cut out of a few draws, and read as numbers; zeros are the simplest example."""

import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paged_conformance.drawing import Numbers, record, records


@given(st.binary(max_size=12), st.lists(st.integers(1, 2**40), max_size=20))
def test_numbers_are_below_their_limit_and_zero_behind_the_end(
    drawn: bytes, limits: list[int]
) -> None:
    numbers, zeros = Numbers(drawn), Numbers(b"")
    assert all(0 <= numbers.below(limit) < limit for limit in limits)
    assert not any(zeros.below(limit) for limit in limits)


@given(st.integers(1, 300), st.data())
def test_each_number_can_be_drawn(limit: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(0, limit - 1))
    assert Numbers(wanted.to_bytes(1 if limit <= 256 else 2)).below(limit) == wanted


@given(st.binary(max_size=12), st.integers(1, 9), st.integers(0, 3), st.integers(0, 3))
def test_several_numbers_are_as_many_as_is_said(
    drawn: bytes, limit: int, least: int, more: int
) -> None:
    assert least <= len(Numbers(drawn).several(limit, least + more, least)) <= least + more


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 30), st.integers(1, 60), st.data())
def test_records_are_as_many_and_as_long_as_is_said(
    count: int, size: int, data: st.DataObject
) -> None:
    drawn = data.draw(records(count, size))
    assert [len(one) for one in drawn] == [size] * count


def test_one_record_is_made_smaller_while_the_others_stay_simple() -> None:
    wanted = hypothesis.find(
        records(12, 5), lambda drawn: any(one[0] > 100 and one[3] for one in drawn)
    )
    assert sorted(wanted)[-1] == bytes([101, 0, 0, 1, 0])
    assert sum(map(any, wanted)) == 1
    assert hypothesis.find(record(3), lambda drawn: True) == bytes(3)
