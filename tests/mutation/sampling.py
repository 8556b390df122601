"""Bugs in the vectorised sampler."""

from tests.mutation.planting import Mutant, plant

TESTS = ("tests/mutation/test_sampler_by_hand.py", "tests/sampling")
FOLDER = "jax_engine/sampling"

MUTANTS: list[Mutant] = [
    *plant(f"{FOLDER}/draw.py", TESTS,
        ("jnp.where(group > 0, _pick(cumulative, jnp.maximum(group - 1, 0)), 0.0)",
         "jnp.zeros_like(target)", "what came before a group of tokens is forgotten"),
        ("jax.random.fold_in(key, at)", "key", "every position draws the same number"),
    ),
    *plant(
        f"{FOLDER}/sampling_inputs.py",
        ("tests/sampling/test_asks.py", "tests/properties/test_host_decides.py"),
        ("long_list=bool((draws & (top_k > CANDIDATES)).any())", "long_list=False",
         "the host forgets a top-k beyond the partial sort"),
    ),
    *plant(f"{FOLDER}/filters.py", TESTS,
        ("jnp.minimum(k, num_candidates) - 1)", "jnp.minimum(k, num_candidates - 1))", "k + 1"),
        ("_pick(candidates, jnp.argmax(reached, axis=1))",
         "_pick(candidates, jnp.maximum(jnp.argmax(reached, axis=1) - 1, 0))",
         "top-p leaves the boundary token out"),
        ("jnp.std(logits, axis=1, where=logits > -jnp.inf)",
         "jnp.std(jnp.maximum(logits, -100.0), axis=1)", "forbidden tokens count in the deviation"),
    ),
    *plant(f"{FOLDER}/sampler.py", TESTS,
        ("inputs.history_is_output.astype(jnp.float32)",
         "jnp.ones(inputs.history_is_output.shape, jnp.float32)",
         "presence and frequency count the prompt"),
        ("(counts > 0)", "counts", "presence counts every occurrence"),
        ("logits.at[at].add(", "logits.at[at].set(", "the bias replaces the logit"),
        ("[:, :vocab] > 0, logits, -jnp.inf)", "[:, :vocab] > 0, logits, logits - 9.0)",
         "forbidden tokens are only less likely"),
    ),
    *plant(f"{FOLDER}/masked_steps.py", TESTS,
        ("edited = np.array(logits)", "edited = logits", "processors change the model's logits"),
        ("is one.empty for", "is not None for", "parameters with defaults count"),
    ),
    *plant(f"{FOLDER}/sampler.py", TESTS,
        ("tempered(edited, inputs), raw)", "tempered(edited, inputs), edited)", "edited logprobs"),
        ("tempered(edited, inputs), raw)", "tempered(raw, inputs), raw)", "beams ignore edits"),
    ),
]  # fmt: skip
