"""The names in the table of docs/tutorial/virtual-memory.md are the oracle's."""

import re

from jax_engine.step import Step
from reference.blocks import BlockAllocator, BlockManager
from reference.prefix_cache import PrefixCache
from reference.scheduler import Scheduler
from reference.sequence import Sequence
from tests.meta.trees import ROOT

CLASSES = (BlockAllocator, BlockManager, PrefixCache, Scheduler, Sequence, Step)
KNOWN = {cls.__name__: cls for cls in CLASSES}
EXPRESSIONS = {"seq.token_ids[position]", "position // block_size"}


def test_names_of_the_table_exist() -> None:
    page = (ROOT / "docs" / "tutorial" / "virtual-memory.md").read_text("utf-8")
    analogy, _, _ = page.partition("## In the paper, in vLLM, here")
    rows = re.findall(r"^\| .* \| .* \| (.*) \|$", analogy, re.MULTILINE)[1:]
    names = {name for row in rows for name in re.findall("`(.*?)`", row)} - EXPRESSIONS
    manager = BlockManager(block_size=4, num_gpu_blocks=2)
    assert len(names) >= 12
    for name in names:
        owner, _, attribute = name.rpartition(".")
        if owner == "BlockAllocator":
            assert attribute in vars(BlockAllocator("gpu", 2))
        elif owner:
            assert hasattr(KNOWN[owner], attribute), name
        else:
            assert name in KNOWN or hasattr(manager, name), name
