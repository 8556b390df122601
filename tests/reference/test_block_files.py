"""The folder's rule by hand: what is used, what gives way, what is not worth a file."""

from reference.block_files import BlockFiles


def test_what_is_removed_is_a_miss_and_may_come_again() -> None:
    files = BlockFiles(limit=10)
    assert files.store(["a", "b"], {"a": 3, "b": 3}) == ["a", "b"]
    files.remove("a")
    files.remove("nothing")
    assert (files.hit_length(["a", "b"]), files.num_bytes) == (0, 3)
    assert files.store(["a", "b"], {"a": 3, "b": 3}) == ["a"]
    assert (files.hit_length(["a", "b"]), files.oldest_first()) == (2, ["b", "a"])


def test_only_the_blocks_that_were_computed_are_stored() -> None:
    """Those before them may be gone: their text is then found only when they come again."""
    files = BlockFiles(limit=10)
    assert files.store(["a", "b"], {"b": 4}) == ["b"]
    assert (files.hit_length(["a", "b"]), files.hit_length([])) == (0, 0)


def test_a_later_block_of_the_same_text_gives_way_for_an_earlier_one() -> None:
    files = BlockFiles(limit=4)
    files.store(["a", "b"], {"b": 2})
    assert files.store(["a", "b"], {"a": 4}) == ["a"]
    assert files.oldest_first() == ["a"]


def test_several_files_give_way_for_a_large_one() -> None:
    files = BlockFiles(limit=4)
    for name in "abcd":
        files.store([name], {name: 1})
    assert files.use(["b"]) == ["b"]
    assert files.store(["e"], {"e": 3}) == ["e"]
    assert files.oldest_first() == ["b", "e"]
