"""This engine's `LLM.embed`, with texts: see `benchmarks/encoders.py`."""

from importlib.metadata import version

from wire import serve, text_of, vector_as_tokens


def load(settings):
    from jax_engine import LLM

    llm = LLM(settings["model"], dtype=settings["dtype"], warmup=True)

    def run(clock):
        outputs = llm.embed([text_of(one) for one in clock.requests], use_tqdm=False)
        now = clock.now()
        for index, output in enumerate(outputs):
            clock.add(index, 0, vector_as_tokens(output.outputs.embedding), now)

    return run, {"jax": version("jax")}


if __name__ == "__main__":
    serve(load)
