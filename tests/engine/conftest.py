"""Tiny Llamas on which tests of this folder run; none of them writes into their folders."""

from pathlib import Path

import pytest

from reference.transformer import Transformer
from tests.support.tiny_llama import byte_llama, tiny_llama


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Transformer]:
    """Its folder, and the reference's decoder with the same weights."""
    return tiny_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny(checkpoint: tuple[Path, Transformer]) -> str:
    """Its folder."""
    return str(checkpoint[0])


@pytest.fixture(scope="session")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of one whose tokens are bytes."""
    return str(byte_llama(tmp_path_factory.mktemp("models") / "bytes"))
