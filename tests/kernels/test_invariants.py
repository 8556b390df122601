"""What holds of any kernel of paged attention without an oracle: I36, I40-I44, I47."""

import pytest

from paged_conformance.kernel.cases import step_of
from paged_conformance.kernel.invariants import NOTHING, WINDOWS
from paged_conformance.kernel.target import Kernel
from tests.kernels.holds import hold, hold_example

pytestmark = pytest.mark.conformance

windows = pytest.mark.parametrize("options", WINDOWS)


@pytest.mark.slow
def test_i40_where_the_blocks_lie_does_not_matter(kernel: Kernel) -> None:
    hold("moved-blocks", kernel)


@pytest.mark.slow
@windows
def test_i41_slots_that_must_not_be_read_do_not_matter(kernel: Kernel, options: str) -> None:
    hold(f"unread-slots-{options}", kernel)


def test_i41_of_values_in_the_keys(kernel: Kernel) -> None:
    hold("unread-slots-keys-alone", kernel)


def test_i41_of_an_8_bit_cache(kernel: Kernel) -> None:
    hold("unread-slots-8-bit", kernel)


@windows
def test_i41_table_entries_past_the_context_are_not_followed(kernel: Kernel, options: str) -> None:
    hold(f"unused-entries-{options}", kernel)


def test_i41_padding_queries_do_not_matter(kernel: Kernel) -> None:
    hold("padding-queries", kernel)


def test_i41_a_broken_sequence_stays_alone(kernel: Kernel) -> None:
    hold("broken-sequence", kernel)


def test_i42_a_context_in_two_parts(kernel: Kernel) -> None:
    hold("two-parts", kernel)


@pytest.mark.slow
def test_i43_grouped_heads_are_repeated_kv_heads(kernel: Kernel) -> None:
    hold("repeated-heads", kernel)


@pytest.mark.slow
@pytest.mark.parametrize("options", NOTHING)
def test_i44_options_that_do_nothing(kernel: Kernel, options: str) -> None:
    hold(f"option-of-nothing-{options}", kernel)


@windows
@pytest.mark.slow
def test_i47_a_decode_is_the_last_row_of_a_prefill(kernel: Kernel, options: str) -> None:
    hold(f"decode-of-a-prefill-{options}", kernel)


def test_i36_company_does_not_matter(kernel: Kernel) -> None:
    hold("company", kernel)


def test_i36_company_that_hypothesis_found(kernel: Kernel) -> None:
    """Eight decodes are worked on together and one alone: the two round differently."""
    if kernel.sizes.few_examples:
        pytest.skip("is in the cases of a kernel that is fast to try")
    sizes = kernel.sizes
    lengths = [(1, min(2, sizes.context - 1)), *[(1, 0)] * 7]
    fitting = lengths[: min(sizes.seqs, sizes.tokens)]
    hold_example("company", kernel, {"step": step_of(fitting, 0, sizes.geometries[0], sizes)})


def test_arguments_stay_as_they_are(kernel: Kernel) -> None:
    hold("arguments-stay", kernel)
