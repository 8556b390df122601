"""A model on a Ray cluster: `serve run examples.ray_serve:make_app model=./my-model`."""

from typing import Any


def make_app(args: dict[str, str]) -> Any:
    from jax_engine.ray import LLMConfig, build_openai_app

    config = LLMConfig(
        model_loading_config={"model_id": "my-model", "model_source": args["model"]},
        engine_kwargs={"max_model_len": 256, "max_num_seqs": 16},
        deployment_config={
            "autoscaling_config": {"min_replicas": 1, "max_replicas": 4},
            "ray_actor_options": {"num_cpus": 2},
        },
    )
    return build_openai_app({"llm_configs": [config]})
