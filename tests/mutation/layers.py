"""Bugs in the decoder's layers: each against the logits that transformers computed."""

from tests.mutation.planting import Mutant, plant

FOLDER = "jax_engine/layers"
FREQUENCIES = ("tests/models/test_rotary.py",)
ALL_KINDS = ("tests/models/test_decoder.py", "-k transformers")
BATCH = ("tests/models/test_batch.py",)
PLAIN = ("tests/models/test_decoder.py", "-k transformers and (plain or biases or tied)")

ROTARY: list[Mutant] = [
    *plant(
        f"{FOLDER}/rotary.py",
        FREQUENCIES,
        ("plain / np.float32(rope.factor), 1.0", "plain, 1.0", "linear does not stretch"),
        (
            "rope.factor * rope.factor - (rope.factor - 1)",
            "rope.factor",
            "dynamic's base is too small",
        ),
        ("** (head_dim / (head_dim - 2))", "** 1.0", "dynamic's exponent"),
        ("wavelength > long, stretched", "wavelength > long, plain", "llama3 keeps long waves"),
        (
            "(1 - blend) * stretched + blend * plain",
            "blend * stretched + (1 - blend) * plain",
            "llama3 blends in reverse",
        ),
        ("plain * (1 - ramp)", "plain", "yarn keeps what the ramp fades out"),
        (
            "if rope.truncate:",
            "if not rope.truncate:",
            "yarn rounds the ramp's ends when it must not",
        ),
        (" / _mscale(rope.factor, rope.mscale_all_dim)", "", "yarn's second mscale is left out"),
    ),
    *plant(
        f"{FOLDER}/rotary.py",
        ALL_KINDS,
        (
            "cos * scaling, sin * scaling",
            "cos * scaling, sin",
            "yarn's factor reaches the cosines only",
        ),
        (
            "first * cos - second * sin",
            "first * cos + second * sin",
            "half of a rotation turns back",
        ),
    ),
]

REST: list[Mutant] = [
    *plant(
        f"{FOLDER}/attention.py",
        PLAIN,
        (
            "spec.query_dim**-0.5",
            "spec.query_dim**-1.0",
            "scores are divided by D, not by its root",
        ),
        ("apply_rotary(k, angles)", "k", "keys are not rotated"),
        (
            "(spec.num_heads, spec.num_heads + spec.num_kv_heads)",
            "(spec.num_heads, spec.num_heads + spec.num_kv_heads - 1)",
            "one head of keys goes to the values",
        ),
    ),
    *plant(
        "jax_engine/models/families/llama.py",
        ("tests/models/test_decoder.py", "-k one_kind"),
        (
            "qkv_bias=bool(fields.attention_bias)",
            "qkv_bias=bool(fields.mlp_bias)",
            "the MLP's bias decides",
        ),
    ),
    *plant(
        f"{FOLDER}/attention.py",
        ("tests/models/test_decoder.py", "-k transformers and mistral"),
        ("window=window", "window=None", "the window does not reach the kernel"),
    ),
    *plant(
        f"{FOLDER}/mlp.py",
        PLAIN,
        ("gated = True", "gated = False", "panels in order, read in turns"),
        (
            "self.down(hidden, batch, layer)",
            "self.down(hidden, batch, 0 * layer)",
            "all layers use the first one's matrix",
        ),
    ),
    *plant(
        f"{FOLDER}/linear.py",
        PLAIN,
        ("if self.bias is not None:", "if False:", "the bias is not added"),
    ),
    *plant(
        f"{FOLDER}/linear.py",
        PLAIN,
        ("self.weight, token_ids)", "self.weight, token_ids + 1)", "the next token's vector"),
    ),
    *plant(
        f"{FOLDER}/batch.py",
        BATCH,
        ("self.query_start_loc[-1]", "self.positions.shape[0]", "padding counts as tokens"),
        ("-(-length // BLOCK_SIZE)", "length // BLOCK_SIZE", "no block for the last tokens"),
    ),
    *plant(
        f"{FOLDER}/rotary.py",
        BATCH,
        (
            "rotary_angles(positions, *",
            "rotary_angles(positions[::-1], *",
            "the last token comes first",
        ),
        ("positions // growth.length", "positions", "queries grow with each position"),
    ),
    *plant(
        f"{FOLDER}/norm.py",
        PLAIN,
        (
            "add_rms_norm(x, residual, weight, batch.num_tokens, eps=eps)",
            "add_rms_norm(x, residual, weight, batch.num_tokens, eps=0.1)",
            "another epsilon",
        ),
        (
            "operations.add_rms_norm(x, residual, weight",
            "operations.add_rms_norm(x, residual * 0, weight",
            "the residual is forgotten",
        ),
    ),
]

MUTANTS = ROTARY + REST
