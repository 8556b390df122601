"""Short words for a mixture of experts, column by column of its table."""

from jax_engine.model_spec import ExpertsSpec
from jax_engine.models.model_config import ModelConfig
from scripts.families.models import layers_of
from scripts.families.words import Facet, network

SCORES = {
    "softmax": "softmax, then top-k",
    "chosen_softmax": "top-k, then softmax",
    "sigmoid": "sigmoid, then top-k",
    "chosen_sigmoid": "top-k, then sigmoid",
}


def experts_of(config: ModelConfig) -> ExpertsSpec:
    return config.spec.experts[0]


def expert(config: ModelConfig) -> str:
    return network(experts_of(config).expert)


def expert_bias(config: ModelConfig) -> str:
    return "bias" if experts_of(config).expert.bias else ""


def routing(config: ModelConfig) -> str:
    return SCORES[experts_of(config).router.scores]


def renormalised(config: ModelConfig) -> str:
    return "renormalised" if experts_of(config).router.renormalise else ""


def router_biases(config: ModelConfig) -> str:
    router = experts_of(config).router
    return "; ".join(["bias"] * router.bias + ["bias that selects"] * router.selection_bias)


def scaling(config: ModelConfig) -> str:
    return "" if experts_of(config).router.scaling == 1 else "scaled"


def of_input(config: ModelConfig) -> str:
    return "weights of inputs" if experts_of(config).scaled_input else ""


def expert_groups(config: ModelConfig) -> str:
    return "" if experts_of(config).router.groups == 1 else "groups"


def shared(config: ModelConfig) -> str:
    experts = experts_of(config)
    if experts.shared is None:
        return ""
    return "with a gate" if experts.shared_gate else "yes"


def sparse(config: ModelConfig) -> str:
    """Which layers have experts."""
    flags = [isinstance(layer.mlp, ExpertsSpec) for layer in layers_of(config.spec)]
    first = flags.index(True)
    if all(flags[first:]):
        return "all" if first == 0 else f"all but the first{f' {first}' * (first > 1)}"
    return f"1 of {first + 1}"


EXPERTS: dict[str, tuple[Facet, ...]] = {
    "expert": (expert, expert_bias),
    "routing": (routing, renormalised, router_biases, expert_groups, scaling, of_input),
    "shared expert": (shared,),
    "in layers": (sparse,),
}
