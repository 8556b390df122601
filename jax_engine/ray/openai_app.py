"""`build_openai_app`: an application of Ray Serve that serves a model, as OpenAI's API does.

    serve run my_file:app           where my_file.py says app = build_openai_app(...)
    serve.run(build_openai_app({"llm_configs": [LLMConfig(...)]}))

With Ray's names, so that a file for `ray.serve.llm` needs another import only.
"""

from collections.abc import Mapping
from typing import Any

from jax_engine.checks import shown
from jax_engine.commands.serve import server_settings
from jax_engine.errors import ConfigError
from jax_engine.ray.llm_config import LLMConfig, check_deployment, check_names, need_ray

ARGUMENTS = ("llm_configs", "ingress_deployment_config")
ROUTER = "jax_engine.ray.prefix_router.PrefixAwareRouter"
POLICY = "jax_engine.ray.autoscaling.QueueAndKVCachePolicy"
PER_RUNNING = 4  # requests in a replica for each that can run: its engine never waits for one
INGRESS_REQUESTS = 1000  # open requests of a replica that only passes them on


def build_openai_app(llm_serving_args: Mapping[str, Any]) -> Any:
    """An application for `serve.run`, `serve run` and `serve deploy`.

    Args:
        llm_serving_args: "llm_configs": a list of one `LLMConfig`, or of its fields; several
            models are several applications. "ingress_deployment_config": options of the
            deployment that passes requests on.

    Raises:
        ConfigError: An argument is wrong.
        MissingPackageError: Ray Serve is not installed.
    """
    check_names("llm_serving_args", llm_serving_args, ARGUMENTS)
    configs = llm_serving_args.get("llm_configs")
    if not isinstance(configs, list | tuple) or len(configs) != 1:
        raise ConfigError(
            "llm_serving_args['llm_configs'] must be a list of one LLMConfig, got "
            f"{shown(configs)}: another model is another application, with a route_prefix"
        )
    config = LLMConfig.of(configs[0])
    of_ingress = llm_serving_args.get("ingress_deployment_config") or {}
    check_deployment("ingress_deployment_config", of_ingress)
    need_ray("a Ray Serve application", "ray.serve")
    from jax_engine.ray.openai_ingress import OpenAiIngress

    server = _server(config)
    limit = server_settings(config.arguments()).max_body_bytes
    options = {"max_ongoing_requests": INGRESS_REQUESTS, **of_ingress}
    ingress = _deployment(OpenAiIngress, "ingress_deployment_config", options)
    return ingress.bind(server.bind(config), limit)


def _server(config: LLMConfig) -> Any:
    """The deployment with the engines."""
    from ray.serve.config import RequestRouterConfig

    from jax_engine.ray.llm_server import LLMServer

    running = config.engine_config().max_num_seqs
    given = dict(config.deployment_config)
    scaling = given.get("autoscaling_config")
    if scaling is None and given.get("num_replicas") == "auto":
        scaling = {"min_replicas": 1, "max_replicas": 100}  # as Serve has it
        del given["num_replicas"]
    if isinstance(scaling, Mapping):
        policy = {"policy_function": POLICY}
        given["autoscaling_config"] = {
            "target_ongoing_requests": running, "policy": policy, **scaling
        }  # fmt: skip
    if config.accelerator_type is not None:
        gpus = {"num_gpus": config.num_gpus(), "accelerator_type": config.accelerator_type}
        given["ray_actor_options"] = {**gpus, **given.get("ray_actor_options", {})}
    options = {
        "max_ongoing_requests": PER_RUNNING * running,
        "request_router_config": RequestRouterConfig(request_router_class=ROUTER),
    } | given
    return _deployment(LLMServer, "deployment_config", options)


def _deployment(cls: type, where: str, options: Mapping[str, Any]) -> Any:
    """
    Raises:
        ConfigError: Serve refuses an option.
    """
    from ray import serve

    try:
        return serve.deployment(cls).options(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error
