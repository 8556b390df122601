"""The oracle's files and a real folder, given the same operations, hold the same.

Compared after each: names in the order in which they would give way, bytes, and what was written.
Two engines use the folder, in turns, and each may end and start again at any time.
"""

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jax_engine.kv_store.folder import LruFolder
from reference.block_files import BlockFiles

LIMIT = 12
TEXTS = st.lists(st.integers(0, 1), min_size=1, max_size=5)
SIZES = st.integers(1, 5)
WHO = st.integers(0, 1)


def names_of(tokens: list[int]) -> list[str]:
    """A name for each prefix, as the blocks of a text have."""
    digests = [hashlib.sha256(bytes(tokens[: i + 1])).hexdigest() for i in range(len(tokens))]
    return [f"{'0' * 16}-{digest}.kv" for digest in digests]


class FolderPair(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp()
        self.oracle = BlockFiles(LIMIT)
        self.folders = [LruFolder(self.path, LIMIT) for _ in range(2)]
        self.sizes: dict[str, int] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.path)

    @rule(who=WHO, tokens=TEXTS, first=st.integers(0, 4), size=SIZES)
    def store(self, who: int, tokens: list[int], first: int, size: int) -> None:
        names = names_of(tokens)
        sizes = {name: self.sizes.setdefault(name, size) for name in names[first:]}
        files: Any = {name: (n, lambda n=n: [b"x" * n]) for name, n in sizes.items()}
        written = self.folders[who].store(names, files)
        assert written == sum(sizes[name] for name in self.oracle.store(names, sizes))

    @rule(who=WHO, tokens=TEXTS)
    def use(self, who: int, tokens: list[int]) -> None:
        names = names_of(tokens)
        assert self.folders[who].use(names) == self.oracle.use(names)

    @rule(tokens=TEXTS)
    def a_file_is_lost(self, tokens: list[int]) -> None:
        """Somebody removes it, or a reader found it wrong. It counts until the folder is read."""
        name = names_of(tokens)[-1]
        Path(self.path, name).unlink(missing_ok=True)
        self.oracle.remove(name)
        for folder in self.folders:
            folder._count = None

    @rule(who=WHO)
    def restart(self, who: int) -> None:
        self.folders[who] = LruFolder(self.path, LIMIT)

    @rule(who=WHO, other=st.sampled_from(["kv.txt", "a.kv", ".kv", "0-1.kv.tmp"]))
    def a_file_of_somebody(self, who: int, other: str) -> None:
        """It is not counted, and it stays."""
        Path(self.path, other).write_bytes(b"y" * 50)
        self.folders[who].look()
        assert Path(self.path, other).stat().st_size == 50
        Path(self.path, other).unlink()

    @rule(who=WHO, tokens=TEXTS)
    def a_writer_died(self, who: int, tokens: list[int]) -> None:
        """What it left is removed when the folder is read."""
        left = Path(self.path, names_of(tokens)[-1] + ".77.tmp")
        left.write_bytes(b"z" * 50)
        self.folders[who] = LruFolder(self.path, LIMIT)
        self.folders[who].look()
        assert not left.exists()

    @invariant()
    def same_files(self) -> None:
        seen = LruFolder(self.path, LIMIT)
        seen.look()
        assert seen.names() == self.oracle.oldest_first()
        there = {one.name: one.stat().st_size for one in Path(self.path).glob("*.kv")}
        assert sum(there.values()) == self.oracle.num_bytes <= LIMIT
        assert there == {name: self.sizes[name] for name in self.oracle.oldest_first()}


TestFolderPair = FolderPair.TestCase
