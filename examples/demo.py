"""`make demo`: the four prompts of the slides and one chat turn, in one continuous batch.

The chat turn is answered twice (n=2): both answers share the blocks of its prompt, until the first
of them writes into the last, partly filled block and gets a copy of its own.
"""

import time

from jax_engine import LLM, SamplingParams

PROMPTS = [
    "Hello, my name is",
    "The president of the United States is",
    "The capital of France is",
    "The future of AI is",
]
QUESTION = "What is the capital of Italy? Name one thing to see there."


def main() -> None:
    started = time.perf_counter()
    llm = LLM()
    print(
        f"\nSmolLM2-135M-Instruct ready after {time.perf_counter() - started:.1f} s\n", flush=True
    )

    chat = llm.get_tokenizer().apply_chat_template(
        [{"role": "user", "content": QUESTION}], tokenize=False, add_generation_prompt=True
    )
    complete = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=24, seed=0)
    answer = SamplingParams(n=2, temperature=0.3, max_tokens=48, seed=0)
    outputs = llm.generate([*PROMPTS, chat], [complete] * len(PROMPTS) + [answer])

    for output in outputs[:-1]:
        print(f"\n{output.prompt!r}\n  -> {output.outputs[0].text!r}")
    print(f"\nchat: {QUESTION!r}")
    for completion in outputs[-1].outputs:
        print(f"  -> {completion.text!r}")

    stats = llm.llm_engine.stats()
    print(
        f"\nKV blocks ({llm.llm_engine.config.block_size} tokens each): at most "
        f"{stats.peak_used_blocks} used and {stats.peak_shared_blocks} shared at once; now "
        f"{stats.num_used_blocks} used, {stats.num_shared_blocks} shared, "
        f"{stats.num_free_blocks} free."
    )
    print(f"All done after {time.perf_counter() - started:.1f} s.")


if __name__ == "__main__":
    main()
