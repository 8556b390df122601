"""Engines with a folder give what one without gives, to the bit, whatever is in the folder.

Random requests on two engines that share a folder, and on one of another model that shares it, too.
Meanwhile engines restart, forget what is in memory, and files are torn, swapped and replaced. The
prompts have other tokens than outputs, so that no engine finds an output in its prefix cache, whose
bits may be others (I47).
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jax_engine import LLM, SamplingParams
from jax_engine.kv_store.stored_blocks import StoredBlocks, open_store
from tests.support import tiny_llama as tiny
from tests.support.patience import HANG_S

SMALL: dict[str, Any] = {
    "skip_tokenizer_init": True, "block_size": 4, "num_gpu_blocks_override": 24,
    "max_model_len": 48, "max_num_seqs": 4, "swap_space": 0, "max_num_batched_tokens": 16,
}  # fmt: skip
OUTPUTS = list(range(10, tiny.VOCAB))
type Ask = tuple[tuple[int, ...], str | None, int, int]  # prompt, salt, seed, samples
ASKS = st.lists(
    st.tuples(
        st.lists(st.integers(3, 4), min_size=1, max_size=30).map(tuple),
        st.sampled_from([None, "a"]),
        st.integers(0, 1),
        st.integers(1, 2),
    ),
    min_size=1, max_size=3,
)  # fmt: skip
WHO = st.sampled_from(["first", "second", "other"])
DAMAGES = [
    "cut", "flip", "swap", "empty", "gone", "folder", "link", "huge", "longer", "noise",
]  # fmt: skip
EVENTS = st.one_of(
    st.tuples(st.just("ask"), WHO, ASKS),
    st.tuples(st.just("restart"), WHO),
    st.tuples(st.just("forget"), WHO),
    st.tuples(
        st.just("damage"), st.sampled_from(DAMAGES), st.integers(0, 99), st.integers(0, 2000)
    ),
)


def answers(llm: LLM, asks: list[Ask]) -> list[Any]:
    """Tokens and log-probabilities, all of their bits."""
    params = [
        SamplingParams(
            max_tokens=5, seed=seed, n=n, temperature=0.8, ignore_eos=True, detokenize=False,
            logprobs=1, allowed_token_ids=OUTPUTS,
        )
        for _, _, seed, n in asks
    ]  # fmt: skip
    prompts: Any = [
        {"prompt_token_ids": list(prompt)} | ({"cache_salt": salt} if salt else {})
        for prompt, salt, _, _ in asks
    ]
    return [
        [
            (
                one.token_ids,
                [{k: v.logprob for k, v in each.items()} for each in one.logprobs or ()],
            )
            for one in answer.outputs
        ]
        for answer in llm.generate(prompts, params, use_tqdm=False)
    ]


class Engines:
    """Two engines and one of another model with a folder, and what engines without one say."""

    def __init__(self, folder: Path) -> None:
        self.kv = folder / "kv"
        self.kv.mkdir()
        model, another = (
            str(tiny.tiny_llama(folder / f"model{seed}", seed=seed)[0]) for seed in (0, 1)
        )
        with_folder = SMALL | {"kv_cache_dir": str(self.kv)}
        self.llms = {
            "first": LLM(model, **with_folder),
            "second": LLM(model, **with_folder),
            "other": LLM(another, **with_folder),
        }
        plain = SMALL | {"enable_prefix_caching": False}
        self._plain = {False: LLM(model, **plain), True: LLM(another, **plain)}
        self._known: dict[tuple[bool, Ask], Any] = {}

    def check(self, who: str, asks: list[Ask]) -> None:
        other = who == "other"
        for ask in asks:
            if (other, ask) not in self._known:
                self._known[other, ask] = answers(self._plain[other], [ask])[0]
        given = answers(self.llms[who], asks)
        assert given == [self._known[other, ask] for ask in asks]

    def restart(self, who: str) -> None:
        """As a new engine: what it had in memory is gone, and the folder is read."""
        engine = self.llms[who].llm_engine
        assert engine._stored is not None
        engine._stored.store.close()
        assert engine.reset_prefix_cache()
        blocks, mover = engine.scheduler.block_manager, engine._stored._mover
        engine._stored = engine._pipeline._stored = StoredBlocks(
            open_store(engine.config, mover), blocks, mover
        )
        engine._stats._store = engine._stored.store

    def forget(self, who: str) -> None:
        """Its prompts are then found in the folder."""
        assert self.llms[who].reset_prefix_cache()

    def drain(self) -> None:
        for llm in self.llms.values():
            assert llm.llm_engine._stored is not None
            assert llm.llm_engine._stored.store.drain(HANG_S)

    def empty(self) -> None:
        self.drain()
        for path in self.kv.glob("*.kv"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for who in self.llms:
            self.restart(who)

    def damage(self, kind: str, which: int, place: int) -> None:
        self.drain()
        paths = sorted(self.kv.glob("*.kv"))
        if not paths:
            return
        path, other = paths[which % len(paths)], paths[(which + 1) % len(paths)]
        if path.is_dir() or other.is_dir() or path.is_symlink() or other.is_symlink():
            return
        held, also = path.read_bytes(), other.read_bytes()
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(other)
        elif kind == "swap":
            path.write_bytes(also)
            other.write_bytes(held)
        elif kind != "gone":
            path.write_bytes(damaged(kind, held, place))


def damaged(kind: str, held: bytes, place: int) -> bytes:
    whole, place = bytearray(held), place % (len(held) or 1)
    if kind == "cut":
        del whole[place:]
    elif kind == "flip" and whole:
        whole[place] ^= 1 << place % 8
    elif kind == "empty":
        whole.clear()
    elif kind == "huge":
        first = (104, 108, 112)[place % 3]
        whole[first : first + 4] = b"\xff" * 4
    elif kind == "longer":
        whole += b"\0"
    elif kind == "noise":
        whole = bytearray(os.urandom(len(whole)))
    return bytes(whole)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    yield Engines(tmp_path_factory.mktemp("engines"))


LONG: Ask = ((3,) * 30, None, 0, 1)


@example(events=[("ask", "first", [LONG]), ("ask", "second", [LONG]), ("ask", "other", [LONG])])
@example(
    events=[
        ("ask", "first", [LONG, (LONG[0], "a", 1, 2), LONG]), ("restart", "first"),
        ("damage", "flip", 3, 400), ("ask", "first", [LONG]), ("ask", "second", [LONG]),
    ]
)  # fmt: skip
@given(events=st.lists(EVENTS, max_size=8))
@settings(
    max_examples=min(12, settings.default.max_examples),
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
def test_answers_have_the_bits_of_an_engine_without_it(engines: Engines, events: list[Any]) -> None:
    run_events(engines, events)


@pytest.mark.slow
@given(events=st.lists(EVENTS, max_size=16))
@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
def test_answers_after_many_events(engines: Engines, events: list[Any]) -> None:
    run_events(engines, events)


def run_events(engines: Engines, events: list[Any]) -> None:
    engines.empty()
    does: dict[str, Callable[..., None]] = {
        "ask": engines.check, "restart": engines.restart, "forget": engines.forget,
        "damage": engines.damage,
    }  # fmt: skip
    for name, *details in events:
        if name in ("restart", "forget"):
            engines.drain()
        does[name](*details)
    for llm in engines.llms.values():
        engine = llm.llm_engine
        assert engine.stats().num_used_blocks == 0 and not engine.has_unfinished_requests()


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_computed_and_written_again(engines: Engines, kind: str) -> None:
    engines.empty()
    engines.check("first", [LONG])
    engines.damage(kind, 3, 200)
    engines.check("second", [LONG])
    engines.drain()
    stats = engines.llms["second"].llm_engine.stats().kv_cache_dir
    assert stats is not None and stats.blocks_loaded < 7
    engines.restart("first")
    engines.check("first", [LONG])


def test_cached_tokens_and_metrics_count_what_was_loaded(engines: Engines) -> None:
    engines.empty()
    engines.check("first", [LONG])
    engines.drain()
    llm = engines.llms["second"]
    params = SamplingParams(max_tokens=1, detokenize=False)
    prompt: Any = {"prompt_token_ids": list(LONG[0])}

    def counts() -> dict[str, Any]:
        return {one.name: getattr(one, "value", None) for one in llm.get_metrics()}

    before = counts()
    (found,) = llm.generate(prompt, params, use_tqdm=False)
    after = counts()
    grown = {name: after[name] - before[name] for name in after if after[name] is not None}
    assert found.num_cached_tokens == 28
    assert grown["vllm:prefix_cache_hits"] == 0
    assert grown["vllm:external_prefix_cache_hits"] == 28
    assert grown["vllm:external_prefix_cache_queries"] == 30
    stats = llm.llm_engine.stats().kv_cache_dir
    assert stats is not None and stats.blocks_loaded == 7
    assert grown["vllm:kv_offload_load_bytes"] == stats.bytes_loaded > 0
    assert after["jax_engine:kv_cache_dir_bytes"] >= 0
    assert after["jax_engine:kv_cache_dir_failures"] == 0
    (again,) = llm.generate(prompt, params, use_tqdm=False)
    assert again.num_cached_tokens == 28
    assert counts()["vllm:prefix_cache_hits"] - after["vllm:prefix_cache_hits"] == 28


def test_a_reset_with_the_connector_removes_this_models_files(engines: Engines) -> None:
    engines.empty()
    for who in ("first", "other"):
        engines.check(who, [LONG])
    engines.drain()
    assert len(list(engines.kv.glob("*.kv"))) == 14
    assert engines.llms["first"].reset_prefix_cache(reset_connector=True)
    engines.drain()
    assert len(list(engines.kv.glob("*.kv"))) == 7
    (found,) = engines.llms["first"].generate(
        {"prompt_token_ids": list(LONG[0])}, SamplingParams(max_tokens=1, detokenize=False),
        use_tqdm=False,
    )  # fmt: skip
    assert found.num_cached_tokens == 0
