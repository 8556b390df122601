"""vLLM's V1 scheduler, of the versions from 0.10 on, without PyTorch and without a device.

Put the folder of an unpacked wheel on the path, as `PYTHONPATH`. Its files are used as they are,
but for those that the scheduler only names (`stand_ins`). `scheduler` makes the plain scheduler,
`async_scheduler` the one that plans ahead of its tokens.

Tables are those of a worker: it adds up the blocks of the plans, and forgets requests that a plan
calls finished or resumed. A request's stop is vLLM's own check.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from paged_conformance.adapters import stand_ins
from paged_conformance.properties import Refused
from paged_conformance.scheduler.saying import EOS

_REAL = (
    "vllm.envs", "vllm.utils", "vllm.v1.core", "vllm.v1.engine", "vllm.v1.kv_cache_interface",
    "vllm.v1.kv_cache_spec_registry", "vllm.v1.kv_hints", "vllm.v1.metrics.stats",
    "vllm.v1.metrics.utils", "vllm.v1.outputs", "vllm.v1.request", "vllm.v1.serial_utils",
    "vllm.v1.spec_decode.metrics", "vllm.v1.utils",
)  # fmt: skip
_FAKE = (
    "torch", "triton", "zmq", "PIL", "transformers", "cbor2", "setproctitle", "psutil",
    "cachetools", "cloudpickle", "yaml", "blake3", "xxhash", "regex", "tqdm", "pydantic",
    "prometheus_client", "numba", "ray", "openai", "fastapi", "partial_json_parser", "cv2",
    "requests", "aiohttp", "typing_extensions", "mistral_common", "tokenizers", "huggingface_hub",
    "msgspec", "depyf", "numpy", "packaging", "filelock",
)  # fmt: skip
_BUT = (
    "vllm.utils.torch_utils",
    "vllm.utils.nccl",
    "vllm.utils.flashinfer",
    "vllm.utils.deep_gemm",
)
_NEEDED = ("msgspec", "numpy", "typing_extensions", "packaging", "tqdm")


class Settings(SimpleNamespace):
    """What was not set is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def _modules() -> dict[str, ModuleType]:
    if "vllm.v1.core.sched.scheduler" not in sys.modules:
        fake = [one for one in _FAKE if one not in _NEEDED and not _there(one)]
        stand_ins.install(["vllm", "torch", "transformers", *fake], _REAL, _BUT)
    names = {
        "scheduler": "vllm.v1.core.sched.scheduler",
        "request": "vllm.v1.request",
        "outputs": "vllm.v1.outputs",
        "interface": "vllm.v1.kv_cache_interface",
        "utils": "vllm.v1.core.kv_cache_utils",
    }
    return {short: importlib.import_module(name) for short, name in names.items()}


def _there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


class Vllm:
    """One scheduler; `Request`, plans and outputs are made as its version declares them."""

    def __init__(self, planning_ahead: bool, **sizes: Any) -> None:
        self.sizes, self._modules = sizes, _modules()
        self._configure(planning_ahead)
        self._tables: dict[str, list[int]] = {}
        self._asked: dict[str, dict[str, Any]] = {}
        self._plans: list[Any] = []

    def _configure(self, planning_ahead: bool) -> None:
        modules, sizes = self._modules, self.sizes
        settings = _settings(sizes, planning_ahead)
        interface = modules["interface"]
        spec = _call(
            interface.FullAttentionSpec, block_size=sizes["block_size"], num_kv_heads=1,
            head_size=1, dtype=_Size(), use_mla=False,
        )  # fmt: skip
        group = _call(interface.KVCacheGroupSpec, layer_names=["layer"], kv_cache_spec=spec)
        cache = _call(
            interface.KVCacheConfig, num_blocks=sizes["num_blocks"] + 1, kv_cache_tensors=[],
            kv_cache_groups=[group], tensors={},
        )  # fmt: skip
        kind: Any = modules["scheduler"].Scheduler
        if planning_ahead:
            kind = importlib.import_module("vllm.v1.core.sched.async_scheduler").AsyncScheduler
        self._scheduler = _call(
            kind, vllm_config=settings, kv_cache_config=cache,
            structured_output_manager=_NoGrammar(), block_size=sizes["block_size"],
        )  # fmt: skip
        self._hasher = self._block_hasher()

    def _block_hasher(self) -> Any:
        utils = self._modules["utils"]
        make = getattr(utils, "get_request_block_hasher", None)
        if make is None or not self.sizes["prefix_cache"]:
            return None
        # The first hash of a chain is made from the environment; here it is always the same.
        init = getattr(utils, "init_none_hash", None)
        if init is not None:
            init(_digest)
        return make(self.sizes["block_size"], _digest)

    def add(self, **asked: Any) -> None:
        if asked["id"] in self._asked:
            raise Refused("the id is in use")
        params = Settings(
            max_tokens=asked["max_tokens"], min_tokens=0, n=1, ignore_eos=asked["ignore_eos"],
            stop_token_ids=asked["stop_token_ids"], all_stop_token_ids=set(),
            eos_token_id=None if asked["ignore_eos"] else EOS, skip_reading_prefix_cache=False,
        )  # fmt: skip
        adapter = asked["adapter"]
        lora = Settings(lora_int_id=adapter, lora_name=str(adapter), adapter_id=adapter)
        made = _call(
            self._modules["request"].Request, request_id=asked["id"],
            prompt_token_ids=list(asked["prompt"]), sampling_params=params, pooling_params=None,
            multi_modal_kwargs=None, multi_modal_hashes=None, multi_modal_placeholders=None,
            multi_modal_inputs=None, mm_features=None, eos_token_id=EOS,
            arrival_time=float(asked["arrival"]), priority=asked["priority"],
            lora_request=lora if adapter else None, block_hasher=self._hasher,
            cache_salt=str(asked["salt"]) if asked["salt"] else None,
        )  # fmt: skip
        made.structured_output_request = None
        made.status = self._modules["request"].RequestStatus.WAITING
        if not isinstance(getattr(type(made), "use_structured_output", None), property):
            made.use_structured_output = False
        self._asked[asked["id"]] = asked
        self._scheduler.add_request(made)

    def abort(self, *, id: str) -> None:
        status = self._modules["request"].RequestStatus.FINISHED_ABORTED
        self._scheduler.finish_requests(id, status)
        self._asked.pop(id, None)

    def schedule(self, *, drafts: list[dict[str, Any]]) -> dict[str, Any]:
        requests = self._scheduler.requests
        given = {item["id"]: item["tokens"] for item in drafts}
        if self.sizes["max_drafts"]:
            for name, request in requests.items():
                request.spec_token_ids = list(given.get(name, []))
        running = {request.request_id for request in self._scheduler.running}
        plan = self._scheduler.schedule()
        self._plans.append(plan)
        starts = self._follow(plan)
        preempted = [
            name for name in running
            if name in requests and requests[name].status.name == "PREEMPTED"
        ]  # fmt: skip
        rows = []
        for name, num_tokens in plan.num_scheduled_tokens.items():
            table = [block - 1 for block in self._tables.get(name, [])]
            guessed = list(plan.scheduled_spec_decode_tokens.get(name, []))
            row = {"id": name, "start": starts.get(name, -1), "tokens": num_tokens, "table": table}
            rows.append({**row, "drafts": guessed})
        return {"rows": rows, "preempted": [{"id": name} for name in sorted(preempted)]}

    def _follow(self, plan: Any) -> dict[str, int]:
        """Does to the tables what a worker does; where each row of the plan starts."""
        starts: dict[str, int] = {}
        for name in plan.finished_req_ids:
            self._tables.pop(name, None)
        for data in plan.scheduled_new_reqs:
            self._tables[data.req_id] = list(data.block_ids[0])
            starts[data.req_id] = data.num_computed_tokens
        cached = plan.scheduled_cached_reqs
        resumed = getattr(cached, "resumed_req_ids", None)
        for number, name in enumerate(cached.req_ids):
            starts[name] = cached.num_computed_tokens[number]
            new = cached.new_block_ids[number]
            new = [] if new is None else list(new[0])
            again = name in resumed if resumed is not None else (
                cached.resumed_from_preemption[number]
            )  # fmt: skip
            if again:
                self._tables[name] = new
            else:
                self._tables.setdefault(name, []).extend(new)
        return starts

    def update(self, *, tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
        plan = self._plans.pop(0)
        drawn = {item["id"]: item["tokens"] for item in tokens}
        names = list(plan.num_scheduled_tokens)
        output = _call(
            self._modules["outputs"].ModelRunnerOutput, req_ids=names,
            req_id_to_index={name: number for number, name in enumerate(names)},
            sampled_token_ids=[drawn.get(name, []) for name in names], spec_token_ids=None,
            logprobs=None, prompt_logprobs_dict={}, pooler_output=[],
        )  # fmt: skip
        results = self._scheduler.update_from_output(plan, output)
        return self._ended(results)

    def _ended(self, results: Any) -> list[dict[str, Any]]:
        ended = []
        groups = results.values() if isinstance(results, dict) else [results]
        for one in [one for group in groups for one in group.outputs]:
            if one.finish_reason is not None and one.request_id in self._asked:
                del self._asked[one.request_id]
                reason = str(one.finish_reason)
                ended.append({"id": one.request_id, "reason": reason})
        return ended

    def state(self) -> dict[str, Any]:
        pool = self._scheduler.kv_cache_manager.block_pool
        queues = ("waiting", "running", "skipped_waiting", "kv_holding_waiting")
        queued = {
            one.request_id for name in queues for one in getattr(self._scheduler, name, None) or ()
        }
        known = set(self._scheduler.requests)
        unfinished = sorted(queued | known)
        return {
            "unfinished": unfinished, "free_blocks": pool.get_num_free_blocks(),
            "num_blocks": self.sizes["num_blocks"],
        }  # fmt: skip


class _NoGrammar:
    """No request asks for a grammar."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **named: name == "accept_tokens"


class _Size:
    itemsize = 2


def _digest(value: Any) -> bytes:
    """A hash of a value of plain tuples, for the chains of the prefix cache."""
    return hashlib.sha256(repr(value).encode()).digest()


def _settings(sizes: dict[str, Any], planning_ahead: bool) -> Settings:
    scheduler = Settings(
        max_num_seqs=sizes["max_num_seqs"], max_num_batched_tokens=sizes["max_num_batched_tokens"],
        max_model_len=sizes["max_model_len"], policy=sizes["policy"],
        enable_chunked_prefill=sizes["chunked"], chunked_prefill_enabled=sizes["chunked"],
        long_prefill_token_threshold=sizes["threshold"], async_scheduling=planning_ahead,
        watermark=0.0, max_num_encoder_input_tokens=0, encoder_cache_size=0,
        num_scheduler_steps=1, disable_chunked_mm_input=False, max_num_partial_prefills=1,
    )  # fmt: skip
    parallel = Settings(
        pipeline_parallel_size=1, data_parallel_rank=0, data_parallel_index=0,
        decode_context_parallel_size=1, prefill_context_parallel_size=1, world_size=1,
    )  # fmt: skip
    model = Settings(
        max_model_len=sizes["max_model_len"], is_multimodal_model=False, is_encoder_decoder=False,
        runner_type="generate", is_diffusion=False, supports_multimodal_inputs=False,
    )  # fmt: skip
    cache = Settings(
        block_size=sizes["block_size"], num_gpu_blocks=sizes["num_blocks"] + 1,
        enable_prefix_caching=sizes["prefix_cache"], mamba_cache_mode="none",
        prefix_caching_hash_algo="builtin",
    )  # fmt: skip
    drafts = sizes["max_drafts"]
    speculative = Settings(
        num_speculative_tokens=drafts, use_eagle=lambda: False, use_eagle_block_drop=lambda: False,
        needs_eagle_block_drop=lambda: False,
        max_num_new_slots_for_drafting=0, method="ngram", use_gemma4_mtp=lambda: False,
        uses_extract_hidden_states=lambda: False, uses_draft_model=lambda: False,
        disable_padded_drafter_batch=False,
    )  # fmt: skip
    lora = Settings(max_loras=sizes["max_adapters"])
    return Settings(
        scheduler_config=scheduler, parallel_config=parallel, model_config=model,
        cache_config=cache, speculative_config=speculative if drafts else None,
        lora_config=lora if sizes["max_adapters"] else None, observability_config=Settings(),
        ec_manager_config=Settings(get_encoder_cache_manager_obj=lambda: None),
        num_speculative_tokens=drafts, num_lookahead_tokens=0, num_prefill_lookahead_tokens=0,
        max_in_flight_tokens=sizes["max_num_batched_tokens"] * 2, max_concurrent_batches=2,
        aux_output_config=Settings(enabled=False), use_v2_model_runner=False,
        is_mm_encoder_only=False,
    )  # fmt: skip


def _call(function: Callable[..., Any], **named: Any) -> Any:
    """With those of the arguments that this version takes."""
    taken = inspect.signature(function).parameters
    if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return function(**named)
    return function(**{name: value for name, value in named.items() if name in taken})


_WORDS = frozenset(
    [
        "tables",
        "chunks",
        "threshold",
        "prefix_cache",
        "salts",
        "fcfs",
        "priorities",
        "aborts",
        "state",
        "model_len",
        "stop_token_ids",
        "drafts",
        "adapters",
        "repeats",
    ]
)


class _Factory:
    """Makes targets; its capabilities are those of the scheduler."""

    def __init__(self, planning_ahead: bool) -> None:
        self._planning_ahead = planning_ahead

    @property
    def capabilities(self) -> frozenset[str]:
        _modules()  # here, so that no example waits for imports
        return (_WORDS - {"drafts"}) | {"ahead"} if self._planning_ahead else _WORDS

    def __call__(self, **sizes: Any) -> Vllm:
        return Vllm(self._planning_ahead, **sizes)


scheduler = _Factory(planning_ahead=False)
async_scheduler = _Factory(planning_ahead=True)
