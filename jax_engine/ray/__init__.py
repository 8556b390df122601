"""Ray: the server as a Ray Serve application, and files of requests answered by `ray.data`.

llm_config.py      `LLMConfig`: a model, its engine's settings, and its deployment's
openai_app.py      `build_openai_app`: an application for `serve run`, with Ray's names
llm_server.py      the deployment that has the engine: the HTTP API without a port
openai_ingress.py  the deployment in front of it, which passes requests on
prefix_routing.py  the rule by which equal prompts meet on one replica
prefix_router.py   that rule as a request router of Ray Serve
autoscaling.py     how many replicas there should be, by their queues and their KV caches
batch.py           `generate_file`: `jax-engine generate` with engines in actors

Nothing else of this package imports Ray, but for `distributed_executor_backend="ray"`.
"""

from jax_engine.ray.batch import generate_file
from jax_engine.ray.llm_config import LLMConfig
from jax_engine.ray.openai_app import build_openai_app

__all__ = ["LLMConfig", "build_openai_app", "generate_file"]
