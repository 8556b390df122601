"""The world of the real worker, with a tiny model: tokens and caches as the reference has them."""

import functools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from jax_engine.worker.worker import Worker
from reference import sampling
from reference.kv_cache import KVCache
from reference.random_numbers import derive_seed, uniform
from reference.transformer import Transformer
from tests.simulation.model import Sample
from tests.simulation.requests import Request
from tests.simulation.settings import Settings
from tests.support.builders import MAX_SEQS, Pool, model_pair, parts_for
from tests.support.engine_pair import MAX_LEN, TOLERANCE
from tests.support.engine_under_test import DebugState
from tests.support.tiny_llama import EOS

POOL = Pool(3, 17)  # one, whose steps are compiled once for all seeds
CLOSE = 1e-3  # keys and values in float32


@functools.cache
def tiny_world() -> "TinyWorld":
    return TinyWorld()


class TinyWorld:
    """See `build.World`."""

    def __init__(self) -> None:
        self._worker: Worker = parts_for(POOL).worker
        self._transformer: Transformer = model_pair(None)[1]
        self._computed: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}

    def adapt(self, settings: Settings) -> Settings:
        """What the compiled steps have room for; and less of all, since a step takes longer."""
        config = settings.config | {
            "block_size": POOL.block_size,
            "max_model_len": MAX_LEN,
            "max_num_seqs": min(MAX_SEQS, settings.config["max_num_seqs"]),
            "max_num_batched_tokens": MAX_LEN,
            "enable_lora": False,
        }
        return replace(
            settings,
            num_blocks=POOL.num_blocks,
            num_cpu_blocks=min(settings.num_cpu_blocks, self._worker.capabilities.num_cpu_blocks),
            config=config,
            has_text=False,
            has_edits=False,
            has_adapters=False,
            num_actions=min(60, settings.num_actions),
        )

    def worker(self, settings: Settings) -> Worker:
        """The same one for all: its caches hold what earlier simulations left, as after a fault."""
        return self._worker

    def cache(self, worker: Worker) -> Any:
        return worker.kv_cache

    def parts(self, settings: Settings) -> Any:
        parts = parts_for(POOL)
        return SimpleNamespace(
            model_config=parts.model_config,
            model_source=parts.model_source,
            memory=parts.memory,
            tokenizer=None,
            eos_token_ids=parts.eos_token_ids,
            head=None,
            modules=None,
        )

    def lose_cache(self, worker: Worker) -> None:
        worker.kv_cache.array.delete()

    def samples(self, request: Request, seed: int, max_model_len: int) -> list[Sample] | None:
        if len(request.prompt) >= max_model_len:
            return []  # it is refused
        samples = [self._sample(request, seed, i) for i in range(request.params.n)]
        return None if None in samples else [one for one in samples if one is not None]

    def _sample(self, request: Request, seed: int, index: int) -> Sample | None:
        params, prompt = request.params, request.prompt
        own, tokens = derive_seed(seed, index), list[int]()
        ends = set(params.stop_token_ids or ()) | (set() if params.ignore_eos else {EOS})
        longest = min(MAX_LEN - len(prompt), params.max_tokens or MAX_LEN)
        while True:
            given: dict[str, Any] = {
                "prompt_token_ids": prompt, "output_token_ids": tokens, "eos_token_ids": [EOS]
            }  # fmt: skip
            logits, _ = self._compute((*prompt, *tokens))
            edges = np.cumsum(sampling.distribution(logits, params, **given))
            drawn = uniform(own, len(prompt) + len(tokens))
            if np.abs(edges - drawn).min() < TOLERANCE:
                return None
            token = sampling.sample(logits, params, **given, seed=own)
            tokens.append(token)
            if token in ends and len(tokens) >= params.min_tokens:
                is_eos = token == EOS and not params.ignore_eos
                return Sample(tokens, "", ("stop", None if is_eos else token))
            if len(tokens) == longest:
                return Sample(tokens, "", ("length", None))

    def check_contents(self, state: DebugState, worker: Worker, *, cached: bool) -> int:
        device, in_host = np.asarray(worker.kv_cache.array), 0
        for table, tokens, _ in state.computed():
            if table.device == "cpu":
                found = np.moveaxis(worker.kv_cache.host.read(table.ids), 0, 2)
                in_host += len(table.ids)
            else:
                found = device[:, :, table.ids]
            found = np.moveaxis(found, 2, 3)  # [L, 2, K, n, B, D]
            found = found.reshape(*found.shape[:3], -1, found.shape[-1])[..., : len(tokens), :]
            wanted = self._compute(tuple(tokens))[1]
            assert np.allclose(found, wanted, atol=CLOSE), f"I13: {tokens}"
        return in_host

    def _compute(self, tokens: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Logits behind the last token, and all keys and values [L, 2, K, T, D]."""
        if tokens not in self._computed:
            config, count = self._transformer.config, len(tokens)
            cache = KVCache(
                num_layers=config.num_hidden_layers,
                num_blocks=1,
                num_kv_heads=config.num_key_value_heads,
                block_size=count,
                head_dim=config.head_dim,
            )
            positions = np.arange(count)
            hidden = self._transformer.forward(
                np.array(tokens), positions, cache, np.array([[0]]), np.array([count]),
                np.array([0, count]), positions,
            )  # fmt: skip
            logits = np.asarray(self._transformer.compute_logits(hidden[-1:])[0])
            self._computed[tokens] = logits, cache.gpu[:, :, 0]
        return self._computed[tokens]
