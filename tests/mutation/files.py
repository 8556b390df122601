"""Bugs in which files of a model are read, and in what they say of tokens and embeddings."""

from tests.mutation.planting import Mutant, plant

FILES = ("tests/models/test_weight_files.py",)
BROKEN = ("tests/models/test_broken_folders.py",)
POOLING = ("tests/engine/test_pooling.py", "tests/models/test_pooling_recipe.py")
ENDS = ("tests/models/test_gguf_ends.py",)
TEMPLATES = ("tests/tokenization/test_chat_templates.py",)
TOKENS = ("tests/tokenization/test_added_tokens.py",)

MUTANTS: list[Mutant] = [
    *plant("jax_engine/models/checkpoints/safetensors_loader.py", FILES,
        ("index, opened = None, {WHOLE", "opened = {WHOLE", "a stale index counts"),
    ),
    *plant("jax_engine/models/checkpoints/resolve.py", BROKEN,
        ("if len(found) == 1 else", "if found else", "one of several models is named"),
        ("if not is_of_macos(one)", "if one", "macOS's file beside one of GGUF makes two"),
    ),
    *plant("jax_engine/models/model_config.py", POOLING,
        ('1: "MEAN", 2: "CLS"', '1: "CLS", 2: "MEAN"', "llama.cpp's numbers are swapped"),
        ("normalize=scales)\n\n", "normalize=True)\n\n", "what is not scaled is scaled"),
    ),
    *plant("jax_engine/engine/pooling.py", POOLING,
        ("np.arange(1, len(tokens) + 1)", "np.arange(len(tokens))", "weights begin with 0"),
    ),
    *plant("jax_engine/models/checkpoints/gguf/__init__.py", ENDS,
        ("(*named, *by_text)", "named", "ends that only a template writes are not known"),
    ),
    *plant("jax_engine/tokenization/chat_template.py", TEMPLATES,
        ("in enumerate(tools)] if tools else None", "in enumerate(tools or ())]",
         "an empty list of tools reaches the template"),
    ),
    *plant("jax_engine/tokenization/tokenizer_fields.py", TOKENS,
        ("lstrip=token.lstrip", "lstrip=False", "no token strips what is before it"),
    ),
]  # fmt: skip
