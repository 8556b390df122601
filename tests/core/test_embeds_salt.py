"""Blocks of prompts that are given as embeddings: their salts, digests and files."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from jax_engine.core.block_digest import Algorithm, digest_function
from jax_engine.core.prefix_cache import EmbedsSalt, Node, PrefixCache
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.kv_store.block_file import BlockForm
from jax_engine.kv_store.folder_store import FolderStore
from jax_engine.sampling_params import SamplingParams
from tests.support.patience import HANG_S

VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)


def chain(salt: EmbedsSalt | None, token_ids: list[int]) -> list[Node]:
    nodes: list[Node] = []
    PrefixCache(2).extend_chain(nodes, token_ids, len(token_ids) // 2, salt)
    return nodes


OF_VLLM = {
    "sha256": [
        "997a75271e0e07d2e343e8fb26b4b29962722d01bd7111eb430ac41e07468129",
        "4e9b2aacff43c74489ae290e934821b471e5103580bc18ef0b0097ec95c08748",
    ],
    "sha256_cbor": [
        "3ff0fb8277b76374379a3f862f98b7ec9482cba8415af9bcd1edb5a090f6c719",
        "5ecac1844f506e362a192eacdbe37263e0b2ec6f6f8ea863456d7dddf0b3f56d",
    ],
}


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_digests_are_those_of_vllm(algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block has two embeddings; the next one has the third, and a token behind it."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    digest = digest_function(algorithm)
    nodes = chain(EmbedsSalt(VECTORS, None, "s"), [0, 0, 0, 7])
    assert [digest(node).hex() for node in nodes] == OF_VLLM[algorithm]


def test_blocks_are_equal_as_far_as_their_embeddings_are() -> None:
    others = VECTORS.copy()
    others[2] += 1
    one, same, other = (
        chain(EmbedsSalt(vectors, None, None), [0, 0, 0, 7])
        for vectors in (VECTORS, VECTORS.copy(), others)
    )
    assert one == same and one[0] == other[0] and one[1] != other[1]
    for salt in [None, EmbedsSalt(VECTORS, "adapter", None), EmbedsSalt(VECTORS, None, "salt")]:
        assert chain(salt, [0, 0, 0, 7])[0] != one[0]


def test_what_a_request_is_routed_by_tells_prompts_apart() -> None:
    def salt(vectors: np.ndarray | None, own: str | None = None) -> object:
        params = SamplingParams()
        group = SequenceGroup("r", [0] * 3, params, cache_salt=own, prompt_embeds=vectors)
        assert group.own_salt == own and group.has_embeds == (vectors is not None)
        return group.prompt_salt

    salts = [salt(None), salt(VECTORS), salt(VECTORS + 1), salt(VECTORS, "own"), salt(None, "own")]
    assert len({*salts}) == len(salts) and salt(VECTORS.copy()) == salts[1]


def test_a_folder_keeps_them_apart(tmp_path: Path) -> None:
    """A file says the salt of its block, so that a restart finds the same chain."""
    form = BlockForm(b"f" * 32, 2, 24)
    nodes = chain(EmbedsSalt(VECTORS, None, "s"), [0, 0, 0, 7, 9, 9])
    store = FolderStore(str(tmp_path), 2**20, form)
    store.store(nodes, [np.zeros((8, 2, 3), np.float32)])
    assert store.drain(HANG_S)
    again = FolderStore(str(tmp_path), 2**20, form)
    assert [node for node, _ in again.recent(10)] == nodes
    parts = again.find(chain(None, [0, 0, 0, 7]), waits=True)
    assert parts is not None and sum(map(len, parts)) == 0
