"""Digests of blocks are vLLM's, name blocks in any process, and tell all contents apart."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from jax_engine.core.block_digest import Algorithm, digest_function
from jax_engine.core.prefix_cache import Node, Salt

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "kv_events.json").read_text("utf-8"))
ALGORITHMS = get_args(Algorithm)


def chain(*blocks: tuple[int, ...], salt: Salt = None) -> Node:
    node = None
    for tokens in blocks:
        node = Node(node, tokens, salt)
    assert node is not None
    return node


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_digests_are_those_of_vllm(algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers and lengths of one to five bytes in CBOR, a salt, a parent, other letters."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    digest = digest_function(algorithm)
    second = chain((1, 2, 300, 70000), (5, 6, 7, 2**31), salt="s")
    assert second.parent is not None
    nodes = [second.parent, second, chain((0, 23, 24, 255)), chain((1,) * 4, salt=("abc", "é"))]
    assert [digest(node).hex() for node in nodes] == GOLDEN[algorithm]


def test_the_seed_is_python_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONHASHSEED, where it is set, as in vLLM."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    there = digest_function("sha256")(chain((1, 2)))
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    assert digest_function("sha256")(chain((1, 2))) != there


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_content_has_a_digest_of_its_own(algorithm: Algorithm) -> None:
    digest = digest_function(algorithm)
    salts: list[Salt] = [None, "", "s", ("", None), ("a", None), ("a", ""), ("a", "s"), ("s", None)]
    texts = [((1, 2),), ((2, 1),), ((1, 2), (1, 2)), ((1, 2), (2, 1)), ((0, 0), (1, 2))]
    nodes = [chain(*text, salt=salt) for text in texts for salt in salts]
    assert len({digest(node) for node in nodes}) == len(nodes)
    assert [digest(chain(*text)) for text in texts] == [digest(chain(*text)) for text in texts]


def test_a_long_chain_is_no_recursion() -> None:
    blocks = [(number, 0) for number in range(20_000)]
    digest = digest_function("sha256")
    assert digest(chain(*blocks)) == digest(chain(*blocks)) != digest(chain(*blocks[:-1]))


def test_another_process_gives_the_same_names() -> None:
    """Where Python's own hashes differ."""
    script = (
        "from jax_engine.core.block_digest import digest_function\n"
        "from jax_engine.core.prefix_cache import Node\n"
        "import os; os.environ.pop('PYTHONHASHSEED')\n"
        "node = Node(Node(None, (1, 2), 'a'), (3, 4), 'a')\n"
        "print(node.chain_hash, digest_function('sha256_cbor')(node).hex())"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]


def test_a_parent_may_be_replaced_by_an_equal_one_meanwhile() -> None:
    """The engine's thread does that (`_adopt`) while another one makes digests."""
    digest = digest_function("sha256")

    class Adopted(Node):
        """Its parent has a digest when it is first read, and none later."""

        parents = iter([chain((1, 2))])

        @property
        def parent(self) -> Node:
            return next(self.parents, chain((1, 2)))

        @parent.setter
        def parent(self, parent: Node | None) -> None:
            if parent is not None:
                digest(parent)
                self.parents = iter([parent])

    adopted = Adopted(chain((1, 2)), (3, 4), None)
    assert digest(adopted) == digest(chain((1, 2), (3, 4)))
