"""The oracle's engine, `reference.engine`, on the tiny random Llama: the suite tests itself on it.

paged-conformance engine paged_conformance.adapters.oracle_engine:make
"""

import functools
from types import SimpleNamespace
from typing import Any, ClassVar

from paged_conformance.adapters import tiny_llama
from paged_conformance.properties import Refused
from reference.admission import AdmissionError
from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache
from reference.parameters import BadParameters, parameters
from reference.transformer import Transformer, TransformerConfig

NAMES = (
    "max_tokens", "min_tokens", "temperature", "seed", "n", "top_k", "top_p", "stop_token_ids",
    "ignore_eos", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias",
)  # fmt: skip
MAX_LEN = 128


@functools.cache
def _transformer() -> Transformer:
    return Transformer(TransformerConfig(**tiny_llama.SIZES), tiny_llama.weights())


class OracleEngine:
    """It has no outputs of its own on the way: each step compares the sequences with before."""

    def __init__(
        self,
        *,
        block_size: int = 16,
        tokens: int = 2048,
        seqs: int = 8,
        batch_tokens: int = MAX_LEN,
        prefix_cache: bool = True,
        speculation: int = 0,
    ) -> None:
        transformer = _transformer()
        shape: dict[str, Any] = transformer.config.cache_sizes()
        cache = KVCache(
            **shape,
            num_blocks=tokens // block_size,
            num_cpu_blocks=2 * tokens // block_size,
            block_size=block_size,
        )
        guess: dict[str, Any] = {"drafter": lambda ids: ids[-1:], "max_draft_tokens": speculation}
        self.engine = ReferenceEngine(
            transformer, cache, eos_token_ids=(tiny_llama.EOS,), max_num_seqs=seqs,
            max_num_batched_tokens=batch_tokens, max_model_len=MAX_LEN, policy="priority",
            enable_prefix_caching=prefix_cache, **(guess if speculation else {}),
        )  # fmt: skip
        self.groups: dict[str, Any] = {}
        self.told: dict[tuple[str, int], int] = {}

    def add(self, *, id: str, prompt: list[int], params: dict[str, Any]) -> None:
        vocabulary = tiny_llama.SIZES["vocab_size"]
        stops = params.get("stop_token_ids", ())
        if not prompt or not all(0 <= token < vocabulary for token in (*prompt, *stops)):
            raise Refused("no prompt, or tokens outside of the vocabulary")
        given = {"temperature": 0} | {name: params[name] for name in NAMES if name in params}
        try:
            form: Any = SimpleNamespace(**vars(parameters(**given)), tokens=None)
            self.engine.add_request(id, prompt, form, priority=params.get("priority", 0))
        except (AdmissionError, BadParameters) as error:
            raise Refused(str(error)) from error
        self.groups[id] = self.engine.scheduler.groups[id]

    def abort(self, *, ids: list[str]) -> list[Any]:
        for name in ids:
            if self.groups.pop(name, None) is not None:
                self.engine.abort_request(name)
        return []

    def step(self) -> list[Any]:
        self.engine.step()
        outputs = []
        for name, group in list(self.groups.items()):
            for seq in group.seqs:
                where, count = (name, seq.index), len(seq.output_token_ids)
                over = seq.finish_reason is not None
                if self.told.get(where) != count + over and (count or over):
                    self.told[where] = count + over
                    outputs.append(_output(name, seq))
            if all(seq.finish_reason for seq in group.seqs) and name not in self._unfinished():
                del self.groups[name]
                for index in range(len(group.seqs)):
                    self.told.pop((name, index), None)
        return outputs

    def _unfinished(self) -> Any:
        return self.engine.scheduler.groups

    def is_busy(self) -> bool:
        return bool(self.groups)

    def state(self) -> dict[str, int]:
        scheduler = self.engine.scheduler
        queues = scheduler.waiting, scheduler.running, scheduler.swapped
        return dict(zip(("waiting", "running", "swapped"), map(len, queues), strict=True))

    def rest(self) -> None:
        """Nothing: it always has one session."""

    def flush(self) -> None:
        """The oracle's cache forgets by itself alone; what it keeps stays good."""

    def model(self) -> dict[str, Any]:
        return {
            "config": tiny_llama.SIZES,
            "weights": str(tiny_llama.folder() / "weights.npz"),
        }


def _output(name: str, seq: Any) -> dict[str, Any]:
    tokens = list(map(int, seq.output_token_ids))
    return {
        "id": name,
        "index": seq.index,
        "token_ids": tokens,
        "text": None,
        "logprobs": list(map(float, seq.logprobs[: len(tokens)])),
        "top": None,
        "finish_reason": None if seq.finish_reason is None else str(seq.finish_reason),
    }


class _Make:
    """The factory."""

    capabilities: ClassVar = {
        "draws", "seeds", "filters", "samples", "min_tokens", "stop_ids", "eos", "penalties",
        "bias", "priorities", "names", "long_prompts", "prefix_cache", "sessions", "state", "pools",
        "budgets", "speculation", "oracle_model",
    }  # fmt: skip
    sizes: ClassVar = {
        "vocabulary": tiny_llama.SIZES["vocab_size"], "max_len": MAX_LEN, "eos": tiny_llama.EOS,
        "max_tokens": 12, "block_size": 16, "min_block": 1, "max_block": 16, "quiet_steps": 500,
    }  # fmt: skip

    def __call__(self, **sizes: Any) -> OracleEngine:
        return OracleEngine(**sizes)


make = _Make()
