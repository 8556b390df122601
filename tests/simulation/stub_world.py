"""The world of the stub worker: no model; what comes next is a pure function of the tokens."""

import functools
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from jax_engine import LLMEngine
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.simulation.model import EOS, VOCABULARY, Rules, Sample
from tests.simulation.requests import Request
from tests.simulation.settings import Settings
from tests.simulation.stub_worker import StubWorker, contents
from tests.support.byte_tokenizer import save_letter_tokenizer
from tests.support.integrity import cached_contents


@functools.cache
def letter_tokenizer() -> Tokenizer:
    folder = Path(tempfile.mkdtemp())
    save_letter_tokenizer(folder, VOCABULARY, EOS)
    return load_tokenizer(folder)


class StubWorld:
    """See `build.World`."""

    def adapt(self, settings: Settings) -> Settings:
        return settings

    def worker(self, settings: Settings) -> StubWorker:
        return StubWorker(
            num_blocks=settings.num_blocks,
            num_cpu_blocks=settings.num_cpu_blocks,
            block_size=settings.config["block_size"],
            max_model_len=settings.max_model_len,
        )

    def parts(self, settings: Settings) -> Any:
        return SimpleNamespace(
            model_config=SimpleNamespace(vocab_size=VOCABULARY),
            model_source=Path("stub"),
            memory=None,
            tokenizer=letter_tokenizer() if settings.has_text else None,
            eos_token_ids=frozenset([EOS]),
            head=None,
        )

    def lose_cache(self, worker: StubWorker) -> None:
        worker.kv_cache.array = None

    def samples(self, request: Request, seed: int, max_model_len: int) -> list[Sample] | None:
        params = request.params
        if len(request.prompt) >= max_model_len:
            return []  # it is refused
        rules = Rules(
            prompt=tuple(request.prompt),
            seed=seed,
            max_tokens=params.max_tokens,
            min_tokens=params.min_tokens,
            ignore_eos=params.ignore_eos,
            stop_token_ids=tuple(params.stop_token_ids or ()),
            stop=tuple(params.stop or ()),
        )
        return [rules.sample(i, max_model_len) for i in range(params.n)]

    def check_contents(self, engine: LLMEngine, worker: StubWorker, *, cached: bool) -> int:
        """Args:
        cached: Whether to look at the blocks of the prefix cache as well.
        """
        blocks, cache, in_host = engine.scheduler.block_manager, worker.kv_cache, 0
        for group in [*engine.scheduler.running, *engine.scheduler.swapped]:
            for seq in group.unfinished():
                table = blocks.block_table(seq.seq_id)
                tokens = seq.token_ids[: seq.num_computed_tokens]
                if not table or not tokens:
                    continue
                if blocks.device(seq.seq_id) == "cpu":
                    found: Any = cache.host.read(table)
                    in_host += len(table)
                else:
                    found = cache.array[table]
                _same(found.reshape(-1)[: len(tokens)], tokens, group.request_id)
        for block, (tokens, _) in cached_contents(blocks).items() if cached else ():
            wanted = contents(list(tokens))[len(tokens) - blocks.block_size :]
            assert (cache.array[block] == wanted).all(), f"I13: cached block {block}"
        return in_host


def _same(found: np.ndarray, tokens: list[int], request_id: str) -> None:
    wanted = contents(tokens)
    assert (found == wanted).all(), f"I13: {request_id} has {found} for {wanted}"
