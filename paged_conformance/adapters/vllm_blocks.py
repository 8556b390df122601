"""vLLM's V1 `KVCacheManager` as a block manager, of the versions from 0.10 on, without a device.

Put the folder of an unpacked wheel on the path: `PYTHONPATH=vllm-0.10.1`. How its modules are
imported without PyTorch is what the scheduler's adapter does. A request's lengths are kept here as
vLLM's scheduler keeps them.
"""

import importlib
from typing import Any

from paged_conformance.properties import Refused

MAX_TOKENS = 100_000


class VllmBlocks:
    """A manager of full attention, and a `Request` of each sequence."""

    def __init__(self, block_size: int, num_blocks: int) -> None:
        self.scheduler = importlib.import_module("paged_conformance.adapters.vllm_scheduler")
        self.modules = self.scheduler._modules()
        self.call = self.scheduler._call
        self.size, self.num_blocks = block_size, num_blocks
        self.manager = self._manager()
        self.hasher = self._hasher()
        self.requests: dict[int, Any] = {}
        self.guesses: dict[int, list[int]] = {}
        self.num_made = 0

    def _manager(self) -> Any:
        interface = self.modules["interface"]
        spec = self.call(
            interface.FullAttentionSpec,
            block_size=self.size,
            num_kv_heads=1,
            head_size=1,
            dtype=self.scheduler._Size(),
            use_mla=False,
        )
        group = self.call(interface.KVCacheGroupSpec, layer_names=["layer"], kv_cache_spec=spec)
        config = self.call(
            interface.KVCacheConfig,
            num_blocks=self.num_blocks + 1,  # it keeps one for itself
            kv_cache_tensors=[],
            kv_cache_groups=[group],
            tensors={},
        )
        module = importlib.import_module("vllm.v1.core.kv_cache_manager")
        return self.call(
            module.KVCacheManager,
            kv_cache_config=config,
            max_model_len=MAX_TOKENS,
            scheduler_block_size=self.size,
            hash_block_size=self.size,
            enable_caching=True,
            use_eagle=False,
            log_stats=False,
        )

    def _hasher(self) -> Any:
        utils = self.modules["utils"]
        if not hasattr(utils, "get_request_block_hasher"):
            return None
        if hasattr(utils, "init_none_hash"):
            utils.init_none_hash(self.scheduler._digest)
        return utils.get_request_block_hasher(self.size, self.scheduler._digest)

    def _request(self, tokens: list[int], salt: str | None, adapter: str | None) -> Any:
        self.num_made += 1
        settings = self.scheduler.Settings
        lora = None
        if adapter is not None:
            lora = settings(lora_int_id=ord(adapter[0]), lora_name=adapter)
        params = settings(
            max_tokens=MAX_TOKENS, n=1, stop_token_ids=[], skip_reading_prefix_cache=False
        )
        request = self.call(
            self.modules["request"].Request,
            request_id=str(self.num_made),
            prompt_token_ids=list(tokens),
            sampling_params=params,
            pooling_params=None,
            multi_modal_kwargs=None,
            multi_modal_hashes=None,
            multi_modal_placeholders=None,
            multi_modal_inputs=None,
            mm_features=None,
            eos_token_id=None,
            arrival_time=0.0,
            lora_request=lora,
            cache_salt=salt,
            block_hasher=self.hasher,
        )
        request.structured_output_request = None
        return request

    def capacity(self) -> int:
        return self.num_blocks

    def num_free(self) -> int:
        return int(self.manager.block_pool.get_num_free_blocks())

    def table(self, *, seq: int) -> list[int]:
        if seq not in self.requests:
            return []
        ids = self.manager.get_block_ids(self.requests[seq].request_id)
        return list(ids[0]) if ids else []

    def match(self, *, tokens: list[int], salt: str | None, adapter: str | None) -> int:
        return int(self.manager.get_computed_blocks(self._request(tokens, salt, adapter))[1])

    def open(
        self, *, seq: int, tokens: list[int], chunk: int, salt: str | None, adapter: str | None
    ) -> dict[str, int]:
        request = self._request(tokens, salt, adapter)
        blocks, hit, *_ = self.manager.get_computed_blocks(request)
        count = min(chunk, len(tokens) - hit)
        if self.manager.allocate_slots(request, count, hit, blocks) is None:
            raise Refused("too few blocks")
        request.status = self.modules["request"].RequestStatus.RUNNING
        request.num_computed_tokens = hit + count
        self.requests[seq] = request
        return {"hit": int(hit)}

    def extend(
        self, *, seq: int, tokens: list[int], chunk: int, guesses: list[int]
    ) -> list[list[int]]:
        request = self.requests[seq]
        if tokens:
            request.append_output_token_ids(list(tokens))
        request.spec_token_ids = list(guesses)
        if self.manager.allocate_slots(request, chunk + len(guesses)) is None:
            if tokens:
                self._take_back(request, len(tokens))
            raise Refused("too few blocks")
        request.num_computed_tokens += chunk
        self.guesses[seq] = list(guesses)
        return []

    def _take_back(self, request: Any, count: int) -> None:
        del request._output_token_ids[-count:]
        del request._all_token_ids[-count:]
        hashes = getattr(request, "block_hashes", None)
        if hashes is not None:
            del hashes[len(request._all_token_ids) // self.size :]

    def computed(self, *, seqs: list[int], accepted: list[int]) -> None:
        for seq, count in zip(seqs, accepted, strict=True):
            right = self.guesses.pop(seq, [])[:count]
            if right:
                self.requests[seq].append_output_token_ids(right)
                self.requests[seq].num_computed_tokens += len(right)
            self.requests[seq].spec_token_ids = []
        if hasattr(self.manager, "new_step_starts"):
            self.manager.new_step_starts()

    def free(self, *, seq: int) -> None:
        if seq not in self.requests:
            raise Refused(f"there is no sequence {seq}")
        self.manager.free(self.requests[seq])
        self.guesses.pop(seq, None)

    def reset(self) -> bool:
        return bool(self.manager.reset_prefix_cache())


class Make:
    """vLLM's manager of blocks, with its prefix cache."""

    @property
    def capabilities(self) -> list[str]:
        # Its modules take long to import; they are there before the first example.
        importlib.import_module("paged_conformance.adapters.vllm_scheduler")._modules()
        importlib.import_module("vllm.v1.core.kv_cache_manager")
        return [
            "prefix_cache",
            "keeps",
            "chunks",
            "several",
            "guesses",
            "salts",
            "adapters",
            "match",
            "reset",
            "exact_hits",
            "lru",
        ]

    def __call__(self, *, block_size: int, num_blocks: int, num_swap_blocks: int) -> VllmBlocks:
        return VllmBlocks(block_size, num_blocks)


make = Make()
