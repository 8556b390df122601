"""This project's schedulers as targets: the engine's (`scheduler`) and the oracle's (`oracle`).

Both have the same calls. `sosp`, `mixed` and their oracles follow the other ways of scheduling.
Swapping is used where a request forked, or always, as the sizes say.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from paged_conformance.properties import Refused
from paged_conformance.scheduler.saying import EOS


def _oracle_classes() -> tuple[Any, Any, Any]:
    from reference.blocks import BlockManager
    from reference.scheduler import Scheduler
    from reference.sequence import SequenceGroup

    return BlockManager, Scheduler, SequenceGroup


def _engine_classes() -> tuple[Any, Any, Any]:
    from jax_engine.core import BlockManager, Scheduler, SequenceGroup

    return BlockManager, Scheduler, SequenceGroup


@dataclass(frozen=True)
class Adapter:
    """What the scheduler sees of an adapter: which one it is."""

    digest: int


class Own:
    """One of our schedulers, the engine's or the oracle's."""

    def __init__(self, oracle: bool, scheduling: str, **sizes: Any) -> None:
        self._oracle, self._sizes = oracle, sizes
        Blocks, Scheduler, self._group = _oracle_classes() if oracle else _engine_classes()
        caching = sizes["prefix_cache"] and scheduling == "unified"
        self._blocks: Any = Blocks(
            sizes["block_size"], sizes["num_blocks"], sizes["swap_blocks"], watermark=0.0,
            enable_prefix_caching=caching,
        )  # fmt: skip
        unified = scheduling == "unified"
        self._scheduler: Any = Scheduler(
            self._blocks, max_num_seqs=sizes["max_num_seqs"],
            max_num_batched_tokens=sizes["max_num_batched_tokens"],
            max_model_len=sizes["max_model_len"], scheduling=scheduling,
            policy=sizes["policy"], enable_chunked_prefill=sizes["chunked"],
            preemption_mode="swap" if sizes["swap_blocks"] % 2 else None,
            long_prefill_token_threshold=sizes["threshold"] if unified else 0,
            max_draft_tokens=sizes["max_drafts"] * sizes["max_num_seqs"] if unified else 0,
            max_loras=sizes["max_adapters"],
        )  # fmt: skip
        self._groups: dict[str, Any] = {}
        self._told: set[tuple[str, int]] = set()
        self._rows: list[dict[tuple[str, int], int]] = []
        self._in_flight = 0

    def add(self, **asked: Any) -> None:
        params = SimpleNamespace(
            n=asked["samples"], best_of=None, max_tokens=asked["max_tokens"], min_tokens=0,
            stop_token_ids=tuple(asked["stop_token_ids"]), ignore_eos=asked["ignore_eos"],
            has_penalties=False, wants_prompt=False, drops_output=False,
        )  # fmt: skip
        salt = str(asked["salt"]) if asked["salt"] else None
        group = self._group(
            asked["id"], list(asked["prompt"]), params, {EOS}, float(asked["arrival"]),
            priority=asked["priority"], cache_salt=salt,
            adapter=Adapter(asked["adapter"]) if asked["adapter"] else None,
        )  # fmt: skip
        try:
            self._scheduler.add_group(group)
        except ValueError as error:
            raise Refused(str(error)) from None
        self._groups[asked["id"]] = group
        self._told -= {(asked["id"], sample) for sample in range(asked["samples"])}

    def abort(self, *, id: str) -> None:
        self._scheduler.abort(id)
        self._groups.pop(id, None)

    def schedule(self, *, drafts: list[dict[str, Any]]) -> dict[str, Any]:
        if self._in_flight and not self._may_go_ahead():
            self._in_flight += 1
            self._rows.append({})
            return {"rows": []}
        plan = self._plan(drafts)
        self._in_flight += 1
        rows, ids = [], {}
        for entry in plan.scheduled:
            key = entry.group.request_id, entry.seq.index
            ids[key] = entry.seq.seq_id
            rows.append(
                {
                    "id": key[0], "sample": key[1], "start": entry.start,
                    "tokens": entry.num_tokens, "drafts": list(entry.drafts),
                    "draws": entry.num_samples, "table": self._table(entry.seq.seq_id),
                }
            )  # fmt: skip
        self._rows.append(ids)
        return {
            "rows": rows,
            "preempted": [{"id": name, "how": how} for name, how in plan.preempted],
            "swap_in": [list(pair) for pair in plan.blocks_to_swap_in],
            "swap_out": [list(pair) for pair in plan.blocks_to_swap_out],
            "copies": [list(pair) for pair in plan.blocks_to_copy],
        }

    def _may_go_ahead(self) -> bool:
        """Counts the plan in flight as computed, if the next one needs only its tokens' number."""
        if not self._scheduler.can_advance():
            return False
        self._scheduler.advance()
        return True

    def _plan(self, drafts: list[dict[str, Any]]) -> Any:
        given = {(one["id"], one["sample"]): one["tokens"] for one in drafts}
        sequences = {
            (name, seq.index): seq
            for name, group in self._groups.items()
            for seq in self._unfinished(group)
        }
        mine = {key: tokens for key, tokens in given.items() if key in sequences}
        if self._oracle:
            for key, tokens in mine.items():
                if sequences[key].num_uncomputed_tokens == 1:
                    sequences[key].drafts = list(tokens)
            return self._scheduler.schedule()
        return self._scheduler.schedule(
            {sequences[key].seq_id: tuple(tokens) for key, tokens in mine.items()}
        )

    def _unfinished(self, group: Any) -> list[Any]:
        found = group.unfinished
        return list(found() if callable(found) else found)

    def _table(self, seq_id: int) -> list[int]:
        return list(self._blocks.block_table(seq_id))

    def update(self, *, tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
        ids = self._rows.pop(0)
        self._in_flight -= 1
        if not ids:
            return []
        drawn: dict[int, list[int]] = {}
        for item in sorted(tokens, key=lambda one: one["sample"]):
            seq_id = ids[item["id"], item["row"]]
            drawn.setdefault(seq_id, []).extend(item["tokens"])
        self._scheduler.update(drawn)
        while not self._oracle and self._scheduler.take_accepted()[0]:
            pass
        ended = []
        for name, group in list(self._groups.items()):
            for seq in group.seqs:
                key = name, seq.index
                if seq.finish_reason is not None and key not in self._told:
                    self._told.add(key)
                    output = list(seq.token_ids[group.prompt_len :])
                    reason = str(seq.finish_reason)
                    ended.append(
                        {"id": name, "sample": seq.index, "reason": reason, "tokens": output}
                    )
            if name not in self._scheduler.groups:
                del self._groups[name]
        return ended

    def state(self) -> dict[str, Any]:
        return {
            "unfinished": list(self._scheduler.groups),
            "free_blocks": self._blocks.num_free_gpu_blocks,
            "num_blocks": self._sizes["num_blocks"],
        }


_WORDS = frozenset(
    [
        "tables",
        "fcfs",
        "priorities",
        "aborts",
        "state",
        "admission",
        "model_len",
        "stop_token_ids",
        "repeats",
        "samples",
        "swap",
        "adapters",
        "salts",
    ]
)
_UNIFIED = frozenset({"chunks", "threshold", "prefix_cache", "drafts"})


class _Factory:
    """Makes targets of one kind."""

    def __init__(self, oracle: bool, scheduling: str = "unified") -> None:
        self._oracle, self._scheduling = oracle, scheduling
        unified = _UNIFIED if scheduling == "unified" else frozenset()
        self.capabilities = _WORDS | unified
        if not oracle and unified:
            self.capabilities = self.capabilities | {"ahead"}

    def __call__(self, **sizes: Any) -> Own:
        return Own(self._oracle, self._scheduling, **sizes)


scheduler = _Factory(False)
sosp = _Factory(False, "sosp")
mixed = _Factory(False, "sosp-mixed")
oracle = _Factory(True)
oracle_sosp = _Factory(True, "sosp")
oracle_mixed = _Factory(True, "sosp-mixed")
