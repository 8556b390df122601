"""Adapters of experts: modules of their own, or parameters of all experts as PEFT adapts them."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.lora.modules import Modules, modules_of
from jax_engine.models.registry import config_from_hf
from tests.golden.families.checkpoints import cases
from tests.lora.adapters import read, tensors_of

CASES = cases()
UP, DOWN = "gate_up_proj", "down_proj"
BOTH = [f"experts.{UP}", f"experts.{DOWN}"]
PREFIX = "base_model.model."
NEW, OLD = "0.19.0", "0.18.1"  # versions of PEFT that have other layouts
FAMILIES = ("mixtral", "qwen3_moe", "granitemoe", "gpt_oss", "deepseek_v3", "olmoe")


@functools.cache
def of_family(case: str, **changes: Any) -> Modules:
    return modules_of(config_from_hf(CASES[case]["config"] | changes))


def parameters_of(of: Modules, ends: tuple[str, ...] = (UP, DOWN)) -> list[str]:
    return [one for one in of.fused if one.endswith(ends)]


def drawn(
    of: Modules, parameters: list[str], rank: int = 4, turned: bool = False, seed: int = 0
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Tensors of parameters as PEFT saves them, and what they add to each: [X, out, in].

    The sums are those of PEFT's `ParamWrapper.get_delta_weight`; `turned` those up to 0.18.
    """
    rng = np.random.default_rng(seed)
    tensors, added = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for parameter in parameters:
        experts = of.fused[parameter]
        parts = [of.by_name[name] for name in experts[0]]
        rows, columns = sum(one.out_size for one in parts), parts[0].in_size
        sizes = (rows, columns) if turned else (columns, rows)
        a = rng.normal(size=(len(experts) * rank, sizes[0])).astype(np.float32)
        b = rng.normal(size=(sizes[1], rank * len(experts))).astype(np.float32)
        outer = parameter.endswith(DOWN) or parameter.rpartition(".")[0] + f".{DOWN}" not in (
            parameters
        )
        stem = PREFIX + parameter.rpartition(".")[0] + ("" if outer else ".base_layer")
        tensors |= {f"{stem}.lora_A.weight": a, f"{stem}.lora_B.weight": b}
        a, b = a.reshape(len(experts), rank, -1), b.reshape(len(b), rank, -1)
        added[parameter] = np.einsum("orx,xri->xio" if turned else "orx,xri->xoi", b, a)
    return tensors, added


def deltas(adapter: Any, of: Modules) -> dict[str, np.ndarray]:
    """What an adapter adds to each parameter, of its experts' modules, without the scaling."""
    own = {one.name: one for one in adapter.modules}
    return {
        parameter: np.stack([
            np.concatenate([own[name].b @ own[name].a for name in names]) for names in experts
        ])
        for parameter, experts in of.fused.items()
        if experts[0][0] in own and not parameter.endswith(".weight")
    }  # fmt: skip


def check(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, one in found.items():
        np.testing.assert_allclose(one, expected[name], atol=1e-5)


@given(
    case=st.sampled_from(FAMILIES),
    targets=st.sampled_from([[UP, DOWN], [UP], [DOWN]]),
    seed=st.integers(0, 99),
    rank=st.integers(1, 5),
)
def test_parameters_are_taken_apart_as_peft_puts_them_together(
    case: str, targets: list[str], seed: int, rank: int
) -> None:
    of = of_family(case)
    tensors, expected = drawn(of, parameters_of(of, tuple(targets)), rank, seed=seed)
    adapter = read(tensors, of=of, r=rank, target_modules=[], target_parameters=targets)
    check(deltas(adapter, of), expected)
    assert {one.scaling for one in adapter.modules} == {8 / rank}


@pytest.mark.parametrize("case", [one for one in FAMILIES if one != "gpt_oss"])
def test_rows_that_old_versions_took_for_columns(case: str) -> None:
    """Seen by the shapes, which fit in one way only."""
    of = of_family(case)
    tensors, expected = drawn(of, parameters_of(of), turned=True)
    for version in (None, OLD, NEW):
        adapter = read(
            tensors, of=of, target_modules=[], target_parameters=BOTH, peft_version=version
        )
        check(deltas(adapter, of), expected)


@pytest.mark.parametrize(
    ("version", "turned"),
    [(None, True), ("0.17.0", True), (OLD, True), ("0.18.2.dev0", True), (NEW, False),
     ("0.21.2", False), ("1.0", False), ("?", True)],
)  # fmt: skip
def test_of_a_square_parameter_the_version_tells(version: str | None, turned: bool) -> None:
    of = of_family("qwen3_moe", moe_intermediate_size=16)  # gate_up is 32 x 32
    tensors, expected = drawn(of, parameters_of(of, (UP,)), turned=turned)
    given = {"target_modules": [], "target_parameters": [UP], "peft_version": version}
    check(deltas(read(tensors, of=of, **given), of), expected)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_of_gpt_oss_all_versions_write_the_same(version: str) -> None:
    """It stores [X, in, out], for which old versions took the others. A square one, too."""
    for changes in ({}, {"intermediate_size": 16}, {"intermediate_size": 32}):
        of = of_family("gpt_oss", **changes)
        tensors, expected = drawn(of, parameters_of(of))
        given = {"target_modules": [], "target_parameters": BOTH, "peft_version": version}
        check(deltas(read(tensors, of=of, **given), of), expected)
    tensors, _ = drawn(of_family("gpt_oss"), parameters_of(of_family("gpt_oss")), turned=True)
    with pytest.raises(WeightsError, match=r"expected shapes .*with 5 experts"):
        read(tensors, of=of_family("gpt_oss"), target_modules=[], target_parameters=BOTH)


def test_granite_before_transformers_5() -> None:
    """Its experts were modules of their own, with a parameter called weight."""
    of = of_family("granitemoe")
    tensors, expected = drawn(of, parameters_of(of))
    names = {".experts.base_layer": ".input_linear", ".experts.lora": ".output_linear.lora"}
    older = {}
    for name, tensor in tensors.items():
        for new, old in names.items():
            name = name.replace(new, old)
        older[name] = tensor
    targets = ["input_linear.weight", "output_linear.weight"]
    check(deltas(read(older, of=of, target_modules=[], target_parameters=targets), of), expected)


@pytest.mark.parametrize("case", ["mixtral", "qwen3_moe"])
def test_a_bare_decoder_s_parameters(case: str) -> None:
    of = of_family(case)
    tensors, expected = drawn(of, parameters_of(of))
    bare = {name.replace("model.layers", "layers"): one for name, one in tensors.items()}
    assert bare.keys() != tensors.keys()
    adapter = read(bare, of=of, target_modules=[], target_parameters=BOTH)
    check(deltas(adapter, of), expected)


def test_ranks_and_scalings_of_parameters() -> None:
    """The patterns are of the parameter's name, as PEFT has it, not of the experts'."""
    of = of_family("qwen3_moe")
    up, _ = drawn(of, parameters_of(of, (UP,)), rank=6)
    down, _ = drawn(of, parameters_of(of), rank=2)
    tensors = {f"{name.replace('.lora', '.base_layer.lora')}": one for name, one in up.items()}
    tensors |= {name: one for name, one in down.items() if "base_layer" not in name}
    given: dict[str, Any] = {
        "target_modules": [], "target_parameters": BOTH, "r": 2,
        "rank_pattern": {f"experts.{UP}": 6}, "alpha_pattern": {r".*\.gate_up_proj": 3},
    }  # fmt: skip
    adapter = read(tensors, of=of, **given)
    found = {(one.name.rpartition(".")[2], one.rank, one.scaling) for one in adapter.modules}
    assert found == {("gate_proj", 6, 0.5), ("up_proj", 6, 0.5), ("down_proj", 2, 4.0)}
    with pytest.raises(WeightsError, match=r"has rank 5 for .*\.gate_proj"):
        read(tensors, of=of, **given | {"rank_pattern": {f"experts.{UP}": 5}})
    with pytest.raises(ConfigError, match=r"rank of .* is 6, above max_lora_rank \(5\)"):
        read(tensors, of=of, limit=5, **given)


def test_what_is_refused_of_parameters() -> None:
    of = of_family("qwen3_moe")
    tensors, _ = drawn(of, parameters_of(of))
    inner = f"{PREFIX}model.layers.1.mlp.experts.base_layer.lora_A.weight"
    outer = inner.replace(".base_layer", "")

    def refused(
        match: str, changed: dict[str, Any], targets: Any = BOTH, error: Any = None
    ) -> None:
        with pytest.raises(error or WeightsError, match=match):
            read(changed, of=of, target_modules=[], target_parameters=targets)

    refused(r"experts together, of whose .* which are adapted; it has none", tensors, None)
    refused(r"it has model.layers.1.mlp.experts.gate_up_proj\.", tensors, BOTH[:1])
    refused(r"'experts.up_proj', which is no parameter", tensors, ["experts.up_proj"], ConfigError)
    refused(r"'proj', which is no parameter", tensors, ["proj"], ConfigError)
    refused("target_parameters", tensors, "experts.down_proj", ConfigError)
    missing = {name: one for name, one in tensors.items() if name != inner}
    refused(r"parameter model.layers.1.mlp.experts.gate_up_proj needs A and B", missing)
    refused("needs A and B", {name: one for name, one in tensors.items() if "layers.1" in name})
    for wrong in (
        tensors[inner][:-1],
        tensors[inner][:, :-1],
        tensors[inner][:0],
        tensors[inner].T,
    ):
        refused(r"expected shapes \(\(24, 32\), \(48, 24\)\) of A and B, with 6 experts",
                tensors | {inner: wrong})  # fmt: skip
    spoilt = tensors[outer].copy()
    spoilt[7, 3] = np.nan
    refused(r"lora_A.weight.*finite, found nan", tensors | {outer: spoilt})
    expert = "model.layers.1.mlp.experts.3.gate_proj"
    both = tensors | tensors_of([expert], of=of)
    refused(r"is for the same module", both)
    turned, _ = drawn(of_family("mixtral"), parameters_of(of_family("mixtral")))
    with pytest.raises(WeightsError, match="Is the adapter another model's"):
        read(turned, of=of_family("olmoe"), target_modules=[], target_parameters=BOTH)


@pytest.mark.parametrize("case", ["mixtral", "qwen3_moe", "deepseek_v3"])
def test_some_experts_alone(case: str) -> None:
    """The others get nothing; whether the configuration selects them makes no difference."""
    of = of_family(case)
    names = [name for name, one in of.by_name.items() if one.kind == "experts"][1::4]
    own = {name.rpartition(".")[2] for name in names}
    for targets in ("all-linear", None, sorted(own)):
        plain = [
            name
            for name, one in of.by_name.items()
            if one.kind == "linear"
            and (targets == "all-linear" or (targets and name.endswith(tuple(own))))
        ]
        tensors = tensors_of([*names, *plain], of=of)
        adapter = read(tensors, of=of, target_modules=targets)
        assert {one.name for one in adapter.modules} == {*names, *plain}


def test_an_expert_that_there_is_not() -> None:
    of = of_family("qwen3_moe")
    tensors = tensors_of(["model.layers.1.mlp.experts.3.gate_proj"], of=of)
    beyond = {name.replace("experts.3", "experts.6"): one for name, one in tensors.items()}
    with pytest.raises(WeightsError, match=r"no module model.layers.1.mlp.experts.6.gate_proj"):
        read(beyond, of=of)
    with pytest.raises(WeightsError, match=r"does not select the module .*experts.3.gate_proj"):
        read(tensors, of=of, target_modules=[])


@pytest.mark.parametrize(
    ("case", "names"),
    [("mixtral", ("block_sparse_moe.gate", "mlp.gate")),
     ("granitemoe", ("block_sparse_moe.router.layer", "block_sparse_moe.router")),
     ("qwen2_moe", ("mlp.gate",)), ("gpt_oss", ("mlp.router",)), ("deepseek_v3", ("mlp.gate",))],
)  # fmt: skip
def test_routers_by_all_their_names(case: str, names: tuple[str, ...]) -> None:
    """Before transformers 5 they were modules; since then PEFT adapts their weight."""
    of = of_family(case)
    (router,) = (one for one in of.by_name if one.endswith(f".1.{names[0]}"))
    assert of.by_name[router].kind == "router"
    tensors, found = tensors_of([router], of=of), set()
    for name in names:
        own = {one.replace(f".1.{names[0]}.", f".1.{name}."): t for one, t in tensors.items()}
        last = f"{name.rpartition('.')[2]}.weight"
        for chosen in (
            {"target_modules": [name.rpartition(".")[2]]},
            {"target_modules": [], "target_parameters": [last]},
            {"target_modules": rf".*\.1\.{name}"},
        ):
            adapter = read(own, of=of, **chosen)
            assert [one.name for one in adapter.modules] == [router]
            found.add(adapter.digest)
        scaled = read(
            own, of=of, target_modules=[], target_parameters=[last], alpha_pattern={last: 2}
        )
        assert scaled.modules[0].scaling == 0.5
    assert len(found) == 1


def test_shapes_of_experts_are_those_of_the_tensors() -> None:
    """An expert is an element of the tensor that holds all experts."""
    of = of_family("gpt_oss")
    up, down = (of.by_name[f"model.layers.2.mlp.experts.{one}[4]"] for one in (UP, DOWN))
    shapes = CASES["gpt_oss"]["tensors"]
    assert [up.in_size, up.out_size] == shapes[f"model.layers.2.mlp.experts.{UP}"][1:]
    assert [down.in_size, down.out_size] == shapes[f"model.layers.2.mlp.experts.{DOWN}"][1:]
    assert f"model.layers.2.mlp.experts.{UP}[5]" not in of.by_name
    of = of_family("granitemoe")
    up = of.by_name["model.layers.0.block_sparse_moe.input_linear[0]"]
    shape = CASES["granitemoe"]["tensors"]["model.layers.0.block_sparse_moe.input_linear.weight"]
    assert [up.out_size, up.in_size] == shape[1:] and up.kind == "experts"
