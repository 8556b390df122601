"""Continuous batching of Hugging Face's transformers: its manager, kept from session to session.

    paged-conformance engine paged_conformance.adapters.transformers_engine:make
    paged-conformance engine paged_conformance.adapters.transformers_engine:batches

`make` asks the manager, `batches` calls `generate_batch` with a persistent one.
The model is a tiny random Llama in float32, on the CPU. The manager works in a thread of its own,
so `step` waits a little for what has been finished. `rest` ends the session as `generate_batch`
does with `persistent_manager=True`; the next `add` gets the manager that the model has kept.
"""

import gc
import inspect
import logging
import time
from importlib import import_module
from typing import Any, ClassVar

from paged_conformance.properties import Refused

VOCABULARY = 61
EOS = 2
MAX_LEN = 256
BLOCKS = 64  # of a pool that nobody asked to be small
WAIT = 0.02  # seconds for an output
_MODELS: dict[str, Any] = {}


def _model() -> Any:
    """The same weights in every process."""
    if "model" not in _MODELS:
        torch = import_module("torch")
        transformers = import_module("transformers")

        logging.getLogger("transformers").setLevel(logging.CRITICAL)
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
        torch.set_num_threads(1)
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=MAX_LEN,
            bos_token_id=1,
            eos_token_id=EOS,
            pad_token_id=0,
            initializer_range=0.5,  # logits far apart
        )
        config._attn_implementation = "eager"
        _MODELS["model"] = transformers.LlamaForCausalLM(config).to(torch.float32).eval()
        gc.collect()
        gc.freeze()  # a manager that stops collects garbage, among all that was imported else
    return _MODELS["model"]


def _known(kind: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Those arguments that this version has."""
    return {name: given[name] for name in given if name in inspect.signature(kind).parameters}


class Manager:
    """One manager, and what it has been asked."""

    def __init__(
        self,
        *,
        block_size: int = 16,
        tokens: int | None = None,
        seqs: int | None = None,
        batch_tokens: int = 64,
        prefix_cache: bool = True,
        draws: bool = False,
        samples: int = 1,
    ) -> None:
        transformers = import_module("transformers")
        configuration_utils = import_module("transformers.generation.configuration_utils")

        _stop_all()
        self.model = _model()
        draws = draws or samples > 1  # it has no greedy samples: top_k=1 makes some
        self.draws, self.samples = draws, samples
        config = configuration_utils.ContinuousBatchingConfig
        size = "page_size" if "page_size" in inspect.signature(config).parameters else "block_size"
        blocks = BLOCKS if tokens is None else tokens // block_size
        given = {
            size: block_size,
            "num_blocks": blocks,
            "max_batch_tokens": batch_tokens,
            "max_requests_per_batch": seqs,
            "allow_block_sharing": prefix_cache,
            "use_async_batching": False,
            "use_cuda_graph": False,
            "auto_switch_to_flash": False,
            "return_logprobs": True,
            "per_request_processors": draws,
            "seed": 0,
        }
        self.config = config(**_known(config, given))
        self.generation = transformers.GenerationConfig(
            max_new_tokens=12,
            do_sample=draws,
            eos_token_id=EOS,
            pad_token_id=0,
            num_return_sequences=samples,
            **({"temperature": 0.7, "top_k": 5, "top_p": 0.95} if draws else {}),
        )
        self.manager: Any = None
        self.pending: dict[str, tuple[str, int]] = {}
        self.ends: dict[str, set[int]] = {}

    def add(self, *, id: str, prompt: list[int], params: dict[str, Any]) -> None:
        if not prompt or params["max_tokens"] < 1 or len(prompt) + params["max_tokens"] > MAX_LEN:
            raise Refused("no prompt, no tokens, or too many")
        if not all(0 <= token < VOCABULARY for token in prompt) or params.get("temperature", 1) < 0:
            raise Refused("tokens and temperatures are checked by its server")
        if params.get("n", 1) != self.samples:
            raise Refused(f"the manager was made for {self.samples} samples")
        if self.manager is None:
            self._start()
        given = {name: params[name] for name in ("temperature", "top_k", "top_p") if name in params}
        if not params.get("temperature"):
            given = {"top_k": 1}  # greedy, of a manager that draws
        eos = [-1] if params.get("ignore_eos") else [EOS]
        eos += params.get("stop_token_ids", [])
        self.ends[id] = set(eos)
        self.pending[id] = (id, 0)
        for number in range(self.samples - 1):
            self.pending[f"{id}__child#{number}"] = (id, number + 1)
        self.manager.add_request(
            prompt,
            request_id=id,
            max_new_tokens=params["max_tokens"],
            streaming=params.get("kind") != "final",
            eos_token_id=eos,
            **(given if self.draws else {}),
        )

    def _start(self) -> None:
        self.manager = self.model.init_continuous_batching(
            generation_config=self.generation, continuous_batching_config=self.config
        )
        self.manager.start()

    def abort(self, *, ids: list[str]) -> list[Any]:
        for name in ids:
            mine = [one for one, (owner, _) in self.pending.items() if owner == name]
            for one in mine:
                del self.pending[one]
                self.manager.cancel_request(one)
        return []

    def step(self) -> list[Any]:
        outputs = []
        deadline = time.monotonic() + WAIT
        while self.pending and time.monotonic() < deadline:
            result = self.manager.get_result(timeout=WAIT)
            if result is None:
                if not self.manager.is_running():
                    error = getattr(self.manager, "fatal_error", None)
                    raise RuntimeError(f"the thread has ended with requests unfinished: {error}")
                continue
            if result.request_id in self.pending:
                outputs.append(self._output(result))
        return outputs

    def _output(self, result: Any) -> dict[str, Any]:
        name, index = self.pending[result.request_id]
        reason = None
        if result.is_finished() or result.error is not None:
            del self.pending[result.request_id]
            last = list(result.generated_tokens)[-1:]
            reason = "stop" if self.ends[name].intersection(last) else "length"
        # Some versions share these lists with the thread, which goes on
        tokens, logprobs = list(result.generated_tokens), list(result.logprobs)
        count = min(len(tokens), len(logprobs)) if reason is None else len(tokens)
        return {
            "id": name,
            "index": index,
            "token_ids": tokens[:count],
            "text": None,
            "logprobs": logprobs[:count] if reason is None else logprobs,
            "top": None,
            "finish_reason": "error" if result.error is not None else reason,
        }

    def is_busy(self) -> bool:
        return bool(self.pending)

    def rest(self) -> None:
        """As the end of a `generate_batch` does that keeps its manager."""
        if self.manager is not None:
            self.manager.stop(block=True, timeout=5, keep_for_next_session=True)
            self.manager = None

    def flush(self) -> None:
        """A manager forgets its blocks with itself."""
        self.close()

    def close(self) -> None:
        if self.manager is not None:
            self.manager.stop(block=True, timeout=5)
            self.manager = None
        if hasattr(self.model, "_cached_continuous_batching_manager"):
            del self.model._cached_continuous_batching_manager


class Batches:
    """`generate_batch` with a persistent manager: each call is a session, and no name is chosen.

    Requests of one call have one `max_new_tokens`, so those that differ go into calls of their own.
    """

    def __init__(self, **sizes: Any) -> None:
        self.inner = Manager(**sizes)
        self.waiting: list[tuple[str, list[int], int]] = []

    def add(self, *, id: str, prompt: list[int], params: dict[str, Any]) -> None:
        if not prompt or params["max_tokens"] < 1 or len(prompt) + params["max_tokens"] > MAX_LEN:
            raise Refused("no prompt, no tokens, or too many")
        if not all(0 <= token < VOCABULARY for token in prompt):
            raise Refused("tokens are checked by its server")
        self.waiting.append((id, list(prompt), params["max_tokens"]))

    def abort(self, *, ids: list[str]) -> list[Any]:
        self.waiting = [one for one in self.waiting if one[0] not in ids]
        return []

    def step(self) -> list[Any]:
        """One whole call."""
        if not self.waiting:
            return []
        count = self.waiting[0][2]
        batch = [one for one in self.waiting if one[2] == count]
        self.waiting = [one for one in self.waiting if one[2] != count]
        results = self.inner.model.generate_batch(
            [prompt for _, prompt, _ in batch],
            generation_config=self.inner.generation,
            continuous_batching_config=self.inner.config,
            persistent_manager=True,
            progress_bar=False,
            warmup=False,
            max_new_tokens=count,
        )
        outputs, left = [], list(results.values())
        for name, prompt, _ in batch:
            mine = [one for one in left if list(one.prompt_ids) == prompt][:1]
            for one in mine:
                left.remove(one)
                outputs.append(_whole(name, one))
        return outputs

    def is_busy(self) -> bool:
        return bool(self.waiting)

    def rest(self) -> None:
        """Nothing: each call ends its session."""

    def close(self) -> None:
        self.inner.close()


def _whole(name: str, result: Any) -> dict[str, Any]:
    tokens = list(result.generated_tokens)
    reason = "stop" if EOS in tokens[-1:] else "length"
    return {
        "id": name,
        "index": 0,
        "token_ids": tokens,
        "text": None,
        "logprobs": list(result.logprobs) or None,
        "top": None,
        "finish_reason": "error" if result.error is not None else reason,
    }


_OPEN: list[Any] = []


def _stop_all() -> None:
    """A model has one manager at a time."""
    while _OPEN:
        _OPEN.pop().close()


class _Make:
    """The factory. It imports its project when it is asked what it can do, which takes a while."""

    @property
    def capabilities(self) -> set[str]:
        _model()
        return {
            "modes", "draws", "filters", "samples", "greedy_samples", "eos", "stop_ids",
            "prefix_cache", "sessions", "pools", "budgets",
        }  # fmt: skip

    sizes: ClassVar = {
        "vocabulary": VOCABULARY, "max_len": MAX_LEN, "eos": EOS, "max_tokens": 12,
        "block_size": 16, "min_block": 4, "max_block": 32, "min_budget": 8, "patience": 20,
    }  # fmt: skip

    def __call__(self, **sizes: Any) -> Any:
        manager = Manager(**sizes)
        _OPEN.append(manager)
        return manager


class _MakeBatches(_Make):
    """The factory of `Batches`."""

    @property
    def capabilities(self) -> set[str]:
        _model()
        return {"modes", "sessions", "pools", "budgets"}

    def __call__(self, **sizes: Any) -> Any:
        batches = Batches(**sizes)
        _OPEN.append(batches)
        return batches


make = _Make()
batches = _MakeBatches()
