"""Bugs in the vectorised sampler."""

from tests.mutation.planting import Mutant, plant

TESTS = ("tests/mutation/test_sampler_by_hand.py", "tests/sampling")
FOLDER = "jax_engine/sampling"

MUTANTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/draw.py",
        TESTS,
        ("target = u * cumulative[:, -1]", "target = u", "weights are taken for probabilities"),
        (
            "jnp.where(group > 0, _pick(cumulative, jnp.maximum(group - 1, 0)), 0.0)",
            "jnp.zeros_like(target)",
            "what came before a group of tokens is forgotten",
        ),
        ("(weights >= min_p)", "(weights > min_p)", "min-p 1 keeps no token"),
        ("jax.random.fold_in(key, at)", "key", "every position draws the same number"),
        ("return logits / jnp", "return logits * jnp", "temperature inverted"),
        (
            "jnp.where(inputs.temperature > 0, draw_in_parts(logits, inputs), greedy)",
            "draw_in_parts(logits, inputs)",
            "greedy rows draw when a neighbour does",
        ),
        ("(inputs.top_p < 1.0)", "(inputs.top_p < 0.0)", "top-p alone does not filter"),
    ),
    *plant(
        f"{FOLDER}/sampling_inputs.py",
        ("tests/sampling/test_asks.py", "tests/properties/test_host_decides.py"),
        (
            "long_list=bool((draws & (top_k > CANDIDATES)).any())",
            "long_list=False",
            "the host forgets a top-k beyond the partial sort",
        ),
        (
            "shortlist=bool((draws & (top_k > 0) | nucleus).any())",
            "shortlist=bool((draws & (top_k > 0)).any())",
            "the host forgets that top-p filters",
        ),
        (
            'bool((rows[:, places["want_logprobs"]] > 0).any())',
            'bool((rows[:, places["want_logprobs"]] > 0).all())',
            "the host asks for log-probabilities only if all rows want them",
        ),
    ),
    *plant(
        f"{FOLDER}/filters.py",
        TESTS,
        ("jnp.minimum(k, num_candidates) - 1)", "jnp.minimum(k, num_candidates - 1))", "k + 1"),
        (
            "_pick(candidates, jnp.argmax(reached, axis=1))",
            "_pick(candidates, jnp.maximum(jnp.argmax(reached, axis=1) - 1, 0))",
            "top-p leaves the boundary token out",
        ),
        (
            "left = jnp.where(logits >= by_count[:, None], weights, 0.0)",
            "left = weights",
            "top-p counts what top-k left out",
        ),
        ("mass >= wanted", "mass > wanted", "the search stops one token late"),
        (
            "jnp.std(logits, axis=1, where=logits > -jnp.inf)",
            "jnp.std(jnp.maximum(logits, -100.0), axis=1)",
            "forbidden tokens count in the deviation",
        ),
        (
            "jnp.maximum(_count_threshold(logits, candidates, k, long_list), nearest)",
            "_count_threshold(logits, candidates, k, long_list)",
            "top-p counts what top-n-sigma left out",
        ),
        ("jnp.where(top_n_sigma > 0, jnp.max", "jnp.where(True, jnp.max", "0 keeps the largest"),
    ),
    *plant(
        f"{FOLDER}/sampler.py",
        TESTS,
        (
            "inputs.history_is_output.astype(jnp.float32)",
            "jnp.ones(inputs.history_is_output.shape, jnp.float32)",
            "presence and frequency count the prompt",
        ),
        (
            "jnp.where(logits > 0, logits / repetition, logits * repetition)",
            "logits / repetition",
            "repetition makes unlikely tokens likelier",
        ),
        ("(counts > 0)", "counts", "presence counts every occurrence"),
        ("logits.at[at].add(", "logits.at[at].set(", "the bias replaces the logit"),
        (
            "[:, :vocab] > 0, logits, -jnp.inf)",
            "[:, :vocab] > 0, logits, logits - 9.0)",
            "forbidden tokens are only less likely",
        ),
    ),
    *plant(
        f"{FOLDER}/masked_steps.py",
        TESTS,
        ("bits, ids // 32", "bits, ids // 31", "tokens are in other words than the device thinks"),
    ),
    *plant(
        f"{FOLDER}/masked_steps.py",
        TESTS,
        ("len(spaced) == len(plain) and ", "", "bad words after a space may be longer"),
        ("len(output) - len(sequence) + 1 :", "len(output) - len(sequence) :", "one token early"),
    ),
    *plant(
        f"{FOLDER}/masked_steps.py",
        TESTS,
        ("edited = np.array(logits)", "edited = logits", "processors change the model's logits"),
        ("is one.empty for", "is not None for", "parameters with defaults count"),
    ),
    *plant(
        f"{FOLDER}/sampler.py",
        TESTS,
        (
            "tempered(edited, inputs), raw)",
            "tempered(edited, inputs), edited)",
            "edited logprobs",
        ),
        ("tempered(edited, inputs), raw)", "tempered(raw, inputs), raw)", "beams ignore edits"),
        ("jnp.sum(logits > chosen", "jnp.sum(logits >= chosen", "ranks start at two"),
    ),
    *plant(
        "jax_engine/engine/masks.py",
        ("tests/properties/test_nothing_to_draw.py",),
        (
            "part.item.group.beam is None and not left.any()",
            "not left.any()",
            "a beam that dies takes the others along",
        ),
    ),
]
