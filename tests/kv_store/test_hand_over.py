"""A prompt is computed in one process, and decoded in another, to the bits of one alone.

So it is after a restart, too: the folder is all that is left of the first process.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, AsyncLLM, ConfigError, SamplingParams
from jax_engine.config.engine_args import EngineArgs
from jax_engine.config.engine_config import EngineConfig
from tests.support import tiny_llama as tiny
from tests.support.tiny_encoders import tiny_encoder

ROOT = Path(__file__).parents[2]


def in_process(role: str, folder: Path, model: Path) -> dict[str, Any]:
    program = [sys.executable, str(ROOT / "examples" / "prefill_then_decode.py")]
    done = subprocess.run(
        [*program, role, str(folder), str(model)], stdout=subprocess.PIPE, text=True, check=True,
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_another_process_goes_on_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other seeds of Python's hash in each: they do not matter."""
    model = tiny.byte_llama(tmp_path / "model", max_position_embeddings=512)
    alone = in_process("decode", tmp_path / "none", model)
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    first = in_process("prefill", tmp_path / "kv", model)
    monkeypatch.setenv("PYTHONHASHSEED", "2")
    second = in_process("decode", tmp_path / "kv", model)
    assert (alone["found"], first["found"]) == (0, 0) and second["found"] >= 288
    assert second["ids"] == alone["ids"] and second["logprobs"] == alone["logprobs"]
    assert first["ids"] == alone["ids"][:1] and first["logprobs"] == alone["logprobs"][:1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"enable_prefix_caching": False}, "needs enable_prefix_caching=True, got False"),
        ({"scheduling": "sosp"}, "needs enable_prefix_caching=True, got False"),
        ({"tensor_parallel_size": 2}, "needs tensor_parallel_size=1, got 2"),
        ({"pipeline_parallel_size": 2}, "needs pipeline_parallel_size=1, got 2"),
        ({"distributed_executor_backend": "mp"}, "needs distributed_executor_backend='uni'"),
        (
            {"speculative_config": {"method": "draft_model", "model": "m"}},
            "needs speculative_config=another method, got 'draft_model'",
        ),
        ({"kv_cache_dir_bytes": 0}, "kv_cache_dir_bytes must be at least 1, got 0"),
        ({"kv_cache_dir_bytes": "many"}, "kv_cache_dir_bytes"),
        ({"kv_cache_dir": 7}, "kv_cache_dir"),
    ],
)
def test_settings_that_do_not_go_with_it(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        EngineConfig(**{"kv_cache_dir": str(tmp_path)} | settings)
    if "kv_cache_dir_bytes" not in settings and "kv_cache_dir" not in settings:
        EngineConfig(**settings)


def test_what_is_no_folder_is_refused_before_a_model_is_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    for path in (file, file / "below", "null\0", "/proc/none"):
        with pytest.raises(ConfigError, match="kv_cache_dir must be a folder that can be written"):
            LLM("/no/model/is/here", kv_cache_dir=str(path))


def test_an_encoder_has_no_blocks(tmp_path: Path) -> None:
    model, *_ = tiny_encoder(tmp_path / "model", "bert")
    with pytest.raises(ConfigError, match=r"kv_cache_dir must be None for Bert.* no KV cache"):
        LLM(str(model), kv_cache_dir=str(tmp_path / "kv"))


def test_flags_take_human_sizes() -> None:
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    found = EngineArgs.from_cli_args(
        parser.parse_args(["--kv-cache-dir", "/tmp/x", "--kv-cache-dir-bytes", "4G"])
    ).create_engine_config()
    assert (found.kv_cache_dir, found.kv_cache_dir_bytes) == ("/tmp/x", 4 * 2**30)
    none = EngineConfig(kv_cache_dir_bytes=None)  # type: ignore[arg-type]
    assert (none.kv_cache_dir, none.kv_cache_dir_bytes) == (None, 10 * 2**30)


@pytest.mark.slow
def test_a_server_s_engine_leaves_its_blocks_at_its_end(tmp_path: Path) -> None:
    """The engine of `AsyncLLM` is in a process of its own, which ends with it."""
    path, _ = tiny.tiny_llama(tmp_path / "model")
    settings: dict[str, Any] = {
        "skip_tokenizer_init": True, "block_size": 4, "num_gpu_blocks_override": 24,
        "max_model_len": 48, "kv_cache_dir": str(tmp_path / "kv"),
    }  # fmt: skip
    prompt: Any = {"prompt_token_ids": [3, 4] * 15}
    params = SamplingParams(max_tokens=3, temperature=0, detokenize=False)

    async def answer() -> tuple[int | None, list[int]]:
        llm = AsyncLLM(str(path), **settings)
        try:
            async for output in llm.generate(prompt, params, request_id="one"):
                last = output
        finally:
            llm.shutdown()
        return last.num_cached_tokens, list(last.outputs[0].token_ids)

    first, second = asyncio.run(answer()), asyncio.run(answer())
    assert (first[0], second[0]) == (0, 28) and first[1] == second[1]
