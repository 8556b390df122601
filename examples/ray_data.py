"""Many prompts on a Ray cluster: `python examples/ray_data.py ./my-model`.

A file in the form of `jax-engine generate`, or any rows.
"""

import sys
from typing import Any


def answer_file(model: str) -> int:
    from jax_engine.ray import LLMConfig, generate_file

    config = LLMConfig(
        model_loading_config={"model_id": "my-model", "model_source": model},
        engine_kwargs={"max_model_len": 256},
    )
    return generate_file(config, "prompts.jsonl", "answers.jsonl", concurrency=2, num_cpus=1)


def answer_rows(model: str, source: str, target: str) -> None:
    import ray

    from jax_engine import LLM, SamplingParams

    class Answers:
        def __init__(self) -> None:
            self.llm = LLM(model, max_model_len=256)

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            params = SamplingParams(temperature=0.0, max_tokens=8)
            outputs = self.llm.generate(batch["prompt"].tolist(), params, use_tqdm=False)
            return {**batch, "text": [one.outputs[0].text for one in outputs]}

    pool = ray.data.ActorPoolStrategy(size=2)
    rows = ray.data.read_json(source).map_batches(Answers, batch_size=64, compute=pool)
    rows.write_json(target)


if __name__ == "__main__":
    print(answer_file(sys.argv[1]), "requests are answered")
