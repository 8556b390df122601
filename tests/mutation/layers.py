"""Bugs in the decoder's layers: each against the logits that transformers computed."""

from tests.mutation.planting import Mutant, plant

FOLDER = "jax_engine/layers"
FREQUENCIES = ("tests/models/test_rotary.py",)
BATCH = ("tests/models/test_batch.py",)
PLAIN = ("tests/models/test_decoder.py", "-k transformers and (plain or biases or tied)")

ROTARY: list[Mutant] = [
    *plant(f"{FOLDER}/rotary.py", FREQUENCIES,
        ("rope.factor * rope.factor - (rope.factor - 1)", "rope.factor",
         "dynamic's base is too small"),
        ("wavelength > long, stretched", "wavelength > long, plain", "llama3 keeps long waves"),
        ("plain * (1 - ramp)", "plain", "yarn keeps what the ramp fades out"),
    ),
]  # fmt: skip

REST: list[Mutant] = [
    *plant(f"{FOLDER}/attention.py", PLAIN,
        ("apply_rotary(k, angles)", "k", "keys are not rotated"),
    ),
    *plant("jax_engine/models/families/llama.py", ("tests/models/test_decoder.py", "-k one_kind"),
        ("qkv_bias=bool(fields.attention_bias)", "qkv_bias=bool(fields.mlp_bias)",
         "the MLP's bias decides"),
    ),
    *plant(
        f"{FOLDER}/attention.py",
        ("tests/models/test_decoder.py", "-k transformers and mistral"),
        ("window=window,\n            soft_cap", "window=None,\n            soft_cap",
         "the window does not reach the kernel"),
    ),
    *plant(f"{FOLDER}/mlp.py", PLAIN,
        ("gated = True", "gated = False", "panels in order, read in turns"),
        ("self.down(hidden, batch, layer)", "self.down(hidden, batch, 0 * layer)",
         "all layers use the first one's matrix"),
    ),
    *plant(f"{FOLDER}/linear.py", PLAIN,
        ("self.weight, token_ids)", "self.weight, token_ids + 1)", "the next token's vector"),
    ),
    *plant(f"{FOLDER}/batch.py", BATCH,
        ("self.sequences.query_start_loc[-1]", "self.positions.shape[0]",
         "padding counts as tokens"),
        ("-(-length // block_size)", "length // block_size", "no block for the last tokens"),
    ),
    *plant(f"{FOLDER}/rotary.py", BATCH,
        ("rotary_angles(positions, *", "rotary_angles(positions[::-1], *",
         "the last token comes first"),
    ),
    *plant(f"{FOLDER}/norm.py", PLAIN,
        ("add_rms_norm(x, residual, weight, batch.num_tokens, eps=eps)",
         "add_rms_norm(x, residual, weight, batch.num_tokens, eps=0.1)", "another epsilon"),
        ("operations.add_rms_norm(x, residual, weight",
         "operations.add_rms_norm(x, residual * 0, weight", "the residual is forgotten"),
    ),
]  # fmt: skip

MUTANTS = ROTARY + REST
