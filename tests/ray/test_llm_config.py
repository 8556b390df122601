"""What is wrong in a configuration is said where it is written, before Ray starts a process."""

import sys
from typing import Any

import pytest

from jax_engine.errors import ConfigError, MissingPackageError
from jax_engine.ray import LLMConfig, build_openai_app, generate_file
from jax_engine.ray.openai_app import PER_RUNNING, POLICY, ROUTER

LOADING = {"model_id": "tiny", "model_source": "./somewhere"}


def config(**changes: Any) -> LLMConfig:
    return LLMConfig(**({"model_loading_config": LOADING} | changes))


def scaling(**fields: Any) -> dict[str, Any]:
    return {"deployment_config": {"autoscaling_config": fields}}


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray has some
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model_loading_config": {}}, r"\['model_id'\] must be a text .* got None"),
    ({"model_loading_config": {"model_id": ""}}, r"\['model_id'\] must be a text .* got ''"),
    (
        {"model_loading_config": {"model_id": "x", "model_source": 7}},
        r"\['model_source'\] must be a text .* got 7",
    ),
    ({"model_loading_config": {"id": "x"}}, "names such as model_id, .* got 'id'"),
    ({"model_loading_config": 7}, "model_loading_config must be a mapping, got 7"),
    ({"engine_kwargs": {"max_modl_len": 7}}, "names such as max_model_len.* got 'max_modl_len'"),
    ({"engine_kwargs": {"port": 8000}}, "engine_kwargs must have names .* got 'port'"),
    ({"engine_kwargs": {"max_num_seqs": 0}}, "max_num_seqs must be at least 1, got 0"),
    ({"engine_kwargs": {"max_body_size": 0}}, "max-body-size must be at least 1, got 0"),
    ({"engine_kwargs": {"max_samples": "x"}}, r"\['max_samples'\] must be of type int, got 'x'"),
    ({"deployment_config": 7}, "deployment_config must be a mapping, got 7"),
    ({"deployment_config": {"num_replicas": 0}}, r"\['num_replicas'\] must be .* least 1, got 0"),
    ({"deployment_config": {"num_replicas": 1.5}}, r"\['num_replicas'\] must be .* got 1.5"),
    (
        {"deployment_config": {"num_replicas": 2, "autoscaling_config": {"max_replicas": 3}}},
        "must have num_replicas or autoscaling_config, got both: 2 and",
    ),
    (scaling(min_replicas=3, max_replicas=2), r"\['min_replicas'\] must be at most .*2\), got 3"),
    (scaling(min_replicas=-1), r"\['min_replicas'\] must be .* at least 0, got -1"),
    (scaling(max_replicas=0, min_replicas=0), r"\['max_replicas'\] must be .* at least 1, got 0"),
    ({"accelerator_type": 7}, "accelerator_type must be a text or None, got 7"),
]


@pytest.mark.parametrize(("changes", "problem"), WRONG)
def test_what_is_wrong_is_named(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config(**changes)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (7, "llm_serving_args must be a mapping, got 7"),
        ({"llm_config": []}, "names such as llm_configs, got 'llm_config'"),
        ({}, "must be a list of one LLMConfig, got None"),
        ({"llm_configs": [config(), config()]}, "a list of one LLMConfig, .* another application"),
        ({"llm_configs": [7]}, "an LLMConfig must be one or a mapping, got 7"),
        ({"llm_configs": [{}]}, "an LLMConfig must have model_loading_config"),
        ({"llm_configs": [{"model": "x"}]}, "an LLMConfig must have names such as .* got 'model'"),
        (
            {"llm_configs": [config()], "ingress_deployment_config": {"num_replicas": 0}},
            r"ingress_deployment_config\['num_replicas'\] must be .* got 0",
        ),
        (
            {"llm_configs": [config(deployment_config={"replicas": 2})]},
            "deployment_config: .*unexpected keyword argument 'replicas'",
        ),
        (
            {"llm_configs": [config(**scaling(target_ongoing_requests=-1))]},
            "(?s)deployment_config: .*target_ongoing_requests",
        ),
    ],
)
def test_what_is_wrong_in_an_application_is_named(given: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        build_openai_app(given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"concurrency": 0}, "concurrency must be an integer of at least 1, got 0"),
        ({"batch_size": "x"}, "batch_size must be an integer of at least 1, got 'x'"),
        ({"source": "/nowhere/at/all"}, "the input /nowhere/at/all: No such file"),
        ({"target": "/nowhere/at/all"}, "the output /nowhere/at/all: No such file"),
        ({"target": __file__, "source": __file__}, "are the same file"),
        ({"target": __file__}, "exists and is not an output of this command"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(given: Any, problem: str, tmp_path: Any) -> None:
    empty = tmp_path / "in.jsonl"
    empty.write_text("")
    with pytest.raises(ConfigError, match=problem):
        generate_file(config(), **({"source": empty, "target": tmp_path / "out.jsonl"} | given))


@pytest.mark.parametrize("module", ["ray.serve", "ray.data"])
def test_without_ray_one_is_told_what_to_install(
    module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "in.jsonl").write_text("")
    with pytest.raises(MissingPackageError, match=r"pip install 'jax-engine\[ray\]'"):
        if module == "ray.serve":
            build_openai_app({"llm_configs": [config()]})
        else:
            generate_file(config(), tmp_path / "in.jsonl", tmp_path / "out.jsonl")


def server_of(app: Any) -> Any:
    """The deployment with the engines, as Serve has it."""
    return app._bound_deployment.init_args[0]._bound_deployment


def options_of(**changes: Any) -> Any:
    return server_of(build_openai_app({"llm_configs": [config(**changes)]}))._deployment_config


def test_an_application_has_a_router_limits_and_a_policy_of_its_own() -> None:
    kwargs = {"engine_kwargs": {"max_num_seqs": 5}}
    made = options_of(**kwargs)
    assert made.request_router_config.request_router_class == ROUTER
    assert made.max_ongoing_requests == 5 * PER_RUNNING and made.autoscaling_config is None
    for given in ({"num_replicas": "auto"}, {"autoscaling_config": {"max_replicas": 100}}):
        found = options_of(**kwargs, deployment_config=given).autoscaling_config
        assert (found.min_replicas, found.max_replicas) == (1, 100)
        assert found.target_ongoing_requests == 5
        assert found.policy.policy_function == POLICY


def test_what_is_given_takes_the_place_of_what_is_our_own() -> None:
    from ray.serve.config import AutoscalingPolicy, RequestRouterConfig

    kwargs = {"target_kv_cache_usage": 0.5}
    policy = AutoscalingPolicy(policy_function=POLICY, policy_kwargs=kwargs)
    scale = {"max_replicas": 3, "target_ongoing_requests": 2.5, "policy": policy}
    router = RequestRouterConfig(
        request_router_class=ROUTER, request_router_kwargs={"imbalanced_threshold": 3}
    )
    given = {
        "autoscaling_config": scale,
        "request_router_config": router,
        "max_ongoing_requests": 7,
        "ray_actor_options": {"num_cpus": 3},
    }
    made = options_of(deployment_config=given)
    assert made.autoscaling_config.policy.policy_kwargs == kwargs
    assert made.autoscaling_config.target_ongoing_requests == 2.5
    assert made.request_router_config.request_router_kwargs == {"imbalanced_threshold": 3}
    assert made.max_ongoing_requests == 7


def test_gpus_are_asked_for_by_their_name() -> None:
    given = config(accelerator_type="H100", engine_kwargs={"tensor_parallel_size": 2})
    made = server_of(build_openai_app({"llm_configs": [given]}))
    assert made.ray_actor_options["num_gpus"] == 2
    assert made.ray_actor_options["accelerator_type"] == "H100"
    assert config().num_gpus() == 0


def test_fields_in_a_file_are_those_of_the_class() -> None:
    """As `serve deploy` reads them."""
    fields = {"model_loading_config": LOADING, "engine_kwargs": {"max_num_seqs": 3}}
    assert LLMConfig.of(fields) == config(engine_kwargs={"max_num_seqs": 3})
    assert LLMConfig.of(fields).arguments().model == "./somewhere"
    assert config(model_loading_config={"model_id": "hub/name"}).arguments().model == "hub/name"
