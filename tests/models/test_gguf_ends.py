"""The tokens that end a GGUF model's turn, by name and by text; what its tokenizer adds."""

from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.models.checkpoints.gguf import end_tokens
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_source import config_from_gguf
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.tokenizer import Tokenizer
from tests.models.test_gguf import write_gguf
from tests.tokenization.conftest import CONTROL, byte_level_metadata, sentencepiece_metadata

TOKENS = "tokenizer.ggml.tokens"


def named(**ids: int | None) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}_token_id": index for name, index in ids.items()}


@pytest.mark.parametrize(
    ("tokens", "ids", "expected"),
    [
        (["a", "b"], {}, []),
        (["a", "b", "c", "d"], {"eos": 2}, [2]),
        (["a", "b", "c", "d"], {"eos": 2, "eot": 0, "eom": 3}, [2, 0, 3]),
        (["a", "b", "c"], {"eos": 1, "eot": 1, "eom": None}, [1]),
        # Llama 3: the file names <|end_of_text|>, the template writes the others.
        (["<|end_of_text|>", "<|eom_id|>", "x", "<|eot_id|>"], {"eos": 0}, [0, 1, 3]),
        (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {"eos": 2}, [2, 0]),  # Qwen
        (["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], {"eos": 1}, [1, 3]),  # Gemma
        (["<|endoftext|>", "<|end|>", "<|user|>"], {"eos": 0}, [0, 1]),  # Phi 3
        # gpt-oss ends messages before the last one with <|end|>.
        (["<|return|>", "<|end|>", "<|call|>", "<|channel|>"], {"eos": 0}, [0, 2]),
        (["<|return|>", "<|end|>", "<|call|>"], {"eos": 0, "eot": 1}, [0, 1, 2]),
        (None, {"eos": 7}, [7]),
        ([["nested"], 5], {"eos": 1}, [1]),
    ],
)
def test_the_ends(tokens: Any, ids: dict[str, int | None], expected: list[int]) -> None:
    metadata = named(**ids) | ({} if tokens is None else {TOKENS: tokens})
    assert end_tokens(metadata) == expected


@pytest.mark.parametrize("kind", [1, CONTROL, 4])
def test_an_end_that_only_the_template_writes_is_no_text(kind: int) -> None:
    """Whatever its type is: it is one token, and is not shown."""
    metadata = byte_level_metadata()
    metadata[TOKENS] = [*metadata[TOKENS], "<|im_end|>"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], kind]
    tokenizer = Tokenizer(backend_from_gguf(metadata))
    end = len(metadata[TOKENS]) - 1
    ids = tokenizer.encode("he<|im_end|>")
    assert ids[-1] == end and tokenizer.is_special(end)
    assert tokenizer.decode(ids) == "he"
    del metadata["tokenizer.ggml.token_type"]
    assert Tokenizer(backend_from_gguf(metadata)).encode("he<|im_end|>") == ids


@pytest.mark.parametrize("make", [byte_level_metadata, sentencepiece_metadata])
@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("eos", [True, False, None])
def test_what_is_put_around_a_text(make: Any, bos: bool, eos: bool | None) -> None:
    added = {"tokenizer.ggml.add_bos_token": bos}
    if eos is not None:
        added["tokenizer.ggml.add_eos_token"] = eos
    metadata = make() | added
    tokenizer = Tokenizer(backend_from_gguf(metadata))
    first, last = (metadata[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos"))
    for text in ("he", ""):
        inner = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text) == [first] * bos + inner + [last] * bool(eos)
    pair = tokenizer.backend.encode("he", "ll").ids
    assert pair.count(last) == bool(eos) and pair.count(first) == int(bos)


def test_a_file_that_adds_an_end_it_does_not_name_adds_none() -> None:
    metadata = sentencepiece_metadata() | {"tokenizer.ggml.add_eos_token": True}
    del metadata["tokenizer.ggml.eos_token_id"]
    assert Tokenizer(backend_from_gguf(metadata)).encode("he")[-1] != 2


@pytest.mark.slow
def test_an_engine_ends_at_an_end_known_by_its_text(tmp_path: Path) -> None:
    """A copy of the model with another vocabulary ends where the first one goes on."""
    base = [f"t{i}" for i in range(31)]
    settings: dict[str, Any] = {"num_gpu_blocks_override": 20, "skip_tokenizer_init": True}

    def tokens_of(vocabulary: list[str], name: str) -> tuple[list[int], str | None]:
        file = write_gguf(tmp_path / name, extra={TOKENS: vocabulary})
        assert config_from_gguf(GgufFile(file)).eos_token_ids[0] == 2
        params = SamplingParams(temperature=0.0, max_tokens=6)
        (output,) = LLM(str(file), **settings).generate([[3, 4, 5]], params, use_tqdm=False)
        return output.outputs[0].token_ids, output.outputs[0].finish_reason

    tokens, reason = tokens_of(base, "a.gguf")
    assert (len(tokens), reason) == (6, "length")
    end = tokens[2]
    base[end] = "<|eot_id|>"
    assert tokens_of(base, "b.gguf") == (tokens[: tokens.index(end) + 1], "stop")
