"""One device's share of a model: its specification, its rows and columns, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jax_engine import LLM, ConfigError, EngineConfig
from jax_engine.engine.startup import build, engine_memory
from jax_engine.engine.startup.open_draft import DraftModel
from jax_engine.model_spec import (
    AttentionSpec,
    ExpertsSpec,
    HeadNormSpec,
    LatentSpec,
    LayerGroup,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    NormSpec,
    RouterSpec,
)
from jax_engine.models.leaves import abstract_leaves
from jax_engine.models.model_loader import abstract_decoder, open_model
from jax_engine.parallel.collectives import leaves_of_experts
from jax_engine.parallel.cuts import HEADS, Cut, cuts_of
from jax_engine.parallel.partition import (
    divided,
    fits,
    in_leaves,
    with_dealt_experts,
    with_repeated_heads,
    with_whole_rows,
)
from jax_engine.weights.transforms import Stack
from jax_engine.worker.kv_cache import block_bytes
from tests.support.tiny_llama import tiny_llama

NORM = NormSpec(1e-5)


def model(
    heads: int, kv_heads: int, width: int, vocab_size: int = 31, **attention: Any
) -> ModelSpec:
    own = AttentionSpec(heads, kv_heads, 4, qkv_bias=True, output_bias=True, **attention)
    layer = LayerSpec(own, MlpSpec(width, bias=True), NORM, mlp_norm=NORM)
    return ModelSpec(vocab_size, 20, (LayerGroup((layer,), 2),), NORM, 64)


def sizes_of(spec: ModelSpec) -> tuple[int, int, int, int]:
    attention, mlp = spec.layers[0].attention, spec.layers[0].mlp
    assert isinstance(mlp, MlpSpec)
    return attention.num_heads, attention.num_kv_heads, mlp.width, spec.vocab_share


TABLE = [  # heads, KV heads, width, size: those of a share, and rows of the head
    ((9, 3, 1536), 3, (3, 1, 512, 11)),
    ((16, 8, 64), 2, (8, 4, 32, 16)),
    ((16, 8, 64), 8, (2, 1, 8, 4)),
    ((16, 2, 64), 8, (2, 1, 8, 4)),
    ((8, 1, 64), 4, (2, 1, 16, 8)),
]


@pytest.mark.parametrize(("whole", "size", "share"), TABLE)
def test_a_share_has_these_sizes(
    whole: tuple[int, int, int], size: int, share: tuple[int, int, int, int]
) -> None:
    spec = model(*whole)
    assert sizes_of(divided(spec, size)) == share
    assert with_repeated_heads(spec, size).num_kv_heads == max(whole[1], size)
    assert divided(spec, 1) is spec is with_repeated_heads(spec, 1)


REFUSED = [
    ((9, 3, 1536), 2, "9 heads, 3 KV heads .* network of 1536: 1 or 3, got 2"),
    ((16, 8, 60), 8, "16 heads, 8 KV heads .* network of 60: 1, 2 or 4, got 8"),
    ((12, 4, 64), 3, "12 heads, 4 KV heads .*: 1, 2 or 4, got 3"),
    ((7, 7, 64), 2, "7 heads, 7 KV heads .*: 1, got 2"),
]


@pytest.mark.parametrize(("whole", "size", "words"), REFUSED)
def test_other_sizes_are_refused_with_those_that_fit(
    whole: tuple[int, int, int], size: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=f"tensor_parallel_size must divide {words}"):
        divided(model(*whole), size)


def latent_model(heads: int, width: int, q_rank: int | None) -> ModelSpec:
    latent = LatentSpec(4, 2, 3, NORM, q_rank)
    own = AttentionSpec(heads, 1, 6, rotary_dim=2, latent=latent, qkv_bias=True, output_bias=True)
    layer = LayerSpec(own, MlpSpec(width), NORM, mlp_norm=NORM)
    return replace(model(heads, heads, width), groups=(LayerGroup((layer,), 2),))


def test_latents_are_whole_on_each_device() -> None:
    spec = latent_model(8, 64, None)
    for size in (2, 4, 8):
        share = divided(spec, size)
        assert sizes_of(share) == (8 // size, 1, 64 // size, -(-31 // size))
        assert share.cached == spec.cached == with_repeated_heads(spec, size).cached == (1, 1, 6)
    with pytest.raises(ConfigError, match="8 heads and a feed-forward network of 64: 1, 2, 4 or 8"):
        divided(spec, 3)


@given(
    heads=st.sampled_from([2, 4, 6, 8]), q_rank=st.sampled_from([None, 5]),
    size=st.sampled_from([2, 3, 4, 8]),
)  # fmt: skip
def test_the_shares_of_latent_attention_are_the_whole(
    heads: int, q_rank: int | None, size: int
) -> None:
    spec = latent_model(heads, 48, q_rank)
    assume(fits(spec, size))
    check_shares(spec, size)


@given(
    kv_heads=st.sampled_from([1, 2, 3, 4, 8]), group=st.integers(1, 4),
    width=st.sampled_from([24, 48, 64]), vocab_size=st.integers(1, 40),
    size=st.sampled_from([2, 3, 4, 8]), tied=st.booleans(),
)  # fmt: skip
def test_the_shares_of_all_devices_are_the_whole(
    kv_heads: int, group: int, width: int, vocab_size: int, size: int, tied: bool
) -> None:
    """Each place of each leaf is on some device, in the shape that the share's model has."""
    spec = replace(model(kv_heads * group, kv_heads, width, vocab_size), tied=tied)
    assume(fits(spec, size))
    check_shares(spec, size)


def check_shares(spec: ModelSpec, size: int) -> None:
    whole = abstract_leaves(abstract_decoder(spec, np.float32)[1], spec)
    share = divided(spec, size)
    own = abstract_leaves(abstract_decoder(share, np.float32)[1], share)
    assert own.keys() == whole.keys()
    cuts = cuts_of({name: leaf.matrix.shape for name, leaf in whole.items()}, spec, size)
    for name, leaf in whole.items():
        shape, ours = leaf.matrix.shape, own[name].matrix.shape
        if name not in cuts:
            assert shape == ours
            continue
        cut = cuts[name]
        values = np.indices(shape)[cut.axis]
        parts = [cut.share(values, rank) for rank in range(size)]
        assert all(part.shape == ours for part in parts)
        assert set(np.concatenate([part.ravel() for part in parts])) == set(range(cut.total))


def mixture(experts: int, *, dealt: bool) -> ModelSpec:
    """Experts beside a shared network, and a width that no number of devices divides."""
    router = RouterSpec(experts, 2)
    mlp = ExpertsSpec(router, MlpSpec(24, bias=True), MlpSpec(48, bias=True))
    plain = model(12, 12, 48)
    layer = replace(plain.layers[0], mlp=mlp)
    spec = replace(plain, groups=(LayerGroup((layer,), 2),), width=13)
    return with_dealt_experts(spec) if dealt else spec


PLACE = "groups.0.places.0"
SUMMED = ("attention.o", "experts.shared.down", "experts.down")
ROWS = tuple(f"{PLACE}.{name}.weight" for name in SUMMED[:2])


@pytest.mark.parametrize("size", [2, 3, 4, 6])
@pytest.mark.parametrize("dealt", [True, False])
@pytest.mark.parametrize("names", [(), ROWS, (*ROWS, f"{PLACE}.experts.down.weight")])
def test_the_shares_of_experts_and_of_whole_rows_are_the_whole(
    names: tuple[str, ...], dealt: bool, size: int
) -> None:
    spec = with_whole_rows(mixture(12, dealt=dealt), names)
    check_shares(spec, size)
    mlp, attention = divided(spec, size).layers[0].mlp, spec.layers[0].attention
    assert isinstance(mlp, ExpertsSpec) and mlp.shared is not None
    whole = [attention.whole_rows, mlp.shared.whole_rows, mlp.expert.whole_rows]
    assert whole == [f"{PLACE}.{name}.weight" in names for name in SUMMED]
    assert (mlp.held, mlp.shared_by) == (12 // size if dealt else 12, size)
    assert mlp.expert.width == (24 if dealt else 24 // size)


def test_experts_that_devices_cannot_share_are_refused_with_the_sizes_that_fit() -> None:
    wanted = "12 heads, 12 KV heads .* network of 48 and 6 experts: 1, 2, 3 or 6, got 4"
    with pytest.raises(ConfigError, match=f"tensor_parallel_size must divide {wanted}"):
        divided(mixture(6, dealt=True), 4)
    assert fits(mixture(6, dealt=False), 4)
    with pytest.raises(ConfigError, match="enable_expert_parallel must be False"):
        with_dealt_experts(model(8, 8, 64))


@pytest.mark.parametrize(
    ("count", "parts"), [(8, [8, 4, 2, 1, 1]), (12, [4, 2, 1, 1, 1]), (7, [1, 1, 1, 1, 1])]
)
def test_dealt_experts_are_added_up_in_as_many_parts(count: int, parts: list[int]) -> None:
    """On 1, 2, 4, 8 and 3 devices: all devices together have the same tree."""
    assert [leaves_of_experts(count, size) for size in (1, 2, 4, 8, 3)] == parts
    (mlp,) = in_leaves(mixture(count, dealt=True)).experts
    assert (mlp.leaves, mlp.dealt_to) == (parts[0], 1)


def test_only_a_device_s_own_experts_are_read() -> None:
    cut = Cut(HEADS, tuple(np.arange(6).reshape(3, 2)), 6)
    whole = Stack("layer", range(2), Stack("expert", range(6), "{layer}.{expert}"))
    for rank in range(3):
        names = [name for name, _ in cut.transform(whole, 4, rank).tensors((2, 2, 5, 4), {})]
        own = (2 * rank, 2 * rank + 1)
        assert names == [f"{layer}.{expert}" for layer in range(2) for expert in own]


@pytest.mark.parametrize(("rank", "times"), [(None, 1), (0, 4)])
def test_memory_for_a_draft_model_is_that_of_each_process(
    rank: int | None, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not cut: one process has it once, however many devices it has."""
    path, _ = tiny_llama(tmp_path / "tiny")
    files = open_model(str(path))
    config = EngineConfig(model=str(path), tensor_parallel_size=4, block_size=4)
    monkeypatch.setattr(engine_memory, "own_rank", lambda: rank)
    weights, block = engine_memory.draft_bytes(config, DraftModel(files, 64, 3, 64, None))
    each = block_bytes(files.abstract.config, 4, np.dtype("float32"))
    assert (weights, block) == (times * files.abstract.num_bytes, times * each)


@pytest.mark.parametrize(("size", "copies"), [(2, 1), (4, 1), (8, 2), (16, 4)])
def test_a_norm_over_all_heads_is_whole_on_each_device(size: int, copies: int) -> None:
    """It is whole in the share's model, too, which counts a KV head of several devices once."""
    spec = model(16, 4, 64, head_norm=HeadNormSpec(1e-5, whole=True))
    share = divided(spec, size)
    assert share.layers[0].attention.kv_copies == copies
    whole, own = (
        abstract_leaves(abstract_decoder(one, np.float32)[1], one) for one in (spec, share)
    )
    for part, heads in (("q_norm", 16), ("k_norm", 4)):
        name = f"groups.0.places.0.attention.{part}.weight"
        assert whole[name].matrix.shape == own[name].matrix.shape == (2, heads, 4)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_query_head_lies_beside_its_kv_head(size: int) -> None:
    """Head h reads KV head h // (H // K), on whatever device it is."""
    spec = model(16, 4, 64)
    leaves = abstract_leaves(abstract_decoder(spec, np.float32)[1], spec)
    name = "groups.0.places.0.attention.qkv.weight"
    cut = cuts_of({name: leaves[name].matrix.shape}, spec, size)[name]
    for places in cut.places:
        heads = places[::4] // 4
        queries = heads[heads < 16]
        keys, values = np.split(heads[len(queries) :], 2)
        group = len(queries) // len(keys)
        assert np.array_equal(np.repeat(keys - 16, group), queries // 4)
        assert np.array_equal(values - keys, np.full(len(keys), 4))


BESIDE = [
    (
        {"speculative_config": {"model": "other", "draft_tensor_parallel_size": 2}},
        "draft_tensor_parallel_size",
    ),
    ({"tensor_parallel_size": 0}, "tensor_parallel_size must be at least 1, got 0"),
]


@pytest.mark.parametrize(("given", "words"), BESIDE)
def test_settings_for_one_device_are_refused(
    given: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path, _ = tiny_llama(tmp_path / "tiny")
    with pytest.raises(ConfigError, match=words):
        LLM(str(path), skip_tokenizer_init=True, **({"tensor_parallel_size": 2} | given))


@pytest.mark.parametrize("size", [3, 10**9])
def test_the_model_s_numbers_come_before_the_devices(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that no machine could meet are refused, and no process is started."""
    monkeypatch.setattr(build, "RunnerClient", None)
    path, _ = tiny_llama(tmp_path / "tiny")
    with pytest.raises(ConfigError, match=rf"4 heads, 2 KV heads .*: 1, 2 or 4, got {size}"):
        LLM(str(path), skip_tokenizer_init=True, tensor_parallel_size=size)
