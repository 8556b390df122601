"""Bugs in which files of a model are read, and in what they say of tokens and embeddings."""

from tests.mutation.planting import Mutant, plant

FILES = ("tests/models/test_weight_files.py",)
BROKEN = ("tests/models/test_broken_folders.py",)
POOLING = ("tests/engine/test_pooling.py", "tests/models/test_pooling_recipe.py")
ENDS = ("tests/models/test_gguf_ends.py",)
TEMPLATES = ("tests/tokenization/test_chat_templates.py",)
TOKENS = ("tests/tokenization/test_added_tokens.py",)
OVERRIDES = ("tests/models/test_hf_overrides.py",)

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/models/checkpoints/safetensors_loader.py",
        FILES,
        (
            "_places(directory, opened) if index is None else index",
            "_places(directory, opened)",
            "the index does not choose between copies",
        ),
        ("index, opened = None, {WHOLE", "opened = {WHOLE", "a stale index counts"),
    ),
    *plant(
        "jax_engine/models/checkpoints/resolve.py",
        FILES,
        ("if what_else(one) is None]\n    if not", "]\n    if not", "an adapter may be the model"),
        ("numbers == whole", "True", "a set that lacks a file is read"),
    ),
    *plant(
        "jax_engine/models/checkpoints/file_schema.py",
        BROKEN,
        ("text.startswith(kind)", "False", "a page that begins with a blank line is not known"),
        ("if not start:", "if False:", "an empty file is not known"),
        ("one.is_symlink() and", "", "a file that is not there is called a link"),
    ),
    *plant(
        "jax_engine/models/checkpoints/resolve.py",
        BROKEN,
        (" and not is_of_macos(one)", "", "macOS's files beside others may be the model"),
    ),
    *plant(
        "jax_engine/models/checkpoints/resolve.py",
        BROKEN,
        ("if len(found) == 1 else", "if found else", "one of several models is named"),
        ("if not is_of_macos(one)", "if one", "macOS's file beside one of GGUF makes two"),
    ),
    *plant(
        "jax_engine/models/checkpoints/quantization/quantized_source.py",
        BROKEN,
        ("outer.quantization if found is None else found", "found", "MLX's older word is not read"),
    ),
    *plant(
        "jax_engine/models/checkpoints/gguf/gguf_file.py",
        ("tests/models/test_gguf.py", "-k split"),
        ("file.tensors |= part.tensors", "pass", "only the first part is read"),
    ),
    *plant(
        "jax_engine/models/model_config.py",
        POOLING,
        ('1: "MEAN", 2: "CLS"', '1: "CLS", 2: "MEAN"', "llama.cpp's numbers are swapped"),
        ("normalize=scales)\n\n", "normalize=True)\n\n", "what is not scaled is scaled"),
    ),
    *plant(
        "jax_engine/engine/pooling.py",
        POOLING,
        (
            "if given is None and recipe.refused is not None:",
            "if False:",
            "a dense layer is left out in silence",
        ),
        ("np.arange(1, len(tokens) + 1)", "np.arange(len(tokens))", "weights begin with 0"),
    ),
    *plant(
        "jax_engine/models/checkpoints/gguf/__init__.py",
        ENDS,
        ("found.keys() >= _OF_TURNS", "False", "gpt-oss ends after its reasoning"),
        ("(*named, *by_text)", "named", "ends that only a template writes are not known"),
    ),
    *plant(
        "jax_engine/tokenization/chat_template.py",
        TEMPLATES,
        ("if with_tools else None", "if False else None", "tools do not choose the template"),
        (
            "in enumerate(tools)] if tools else None",
            "in enumerate(tools or ())]",
            "an empty list of tools reaches the template",
        ),
    ),
    *plant(
        "jax_engine/tokenization/chat_content.py",
        TEMPLATES,
        ("if isinstance(calls, list | tuple) and not calls:", "if False:", "no calls are calls"),
    ),
    *plant(
        "jax_engine/tokenization/tokenizer_fields.py",
        TOKENS,
        ("lstrip=token.lstrip", "lstrip=False", "no token strips what is before it"),
        ("token.special or token.content in names", "token.special", "named tokens are text"),
    ),
    *plant(
        "jax_engine/models/hf_fields.py",
        OVERRIDES,
        ("_kind(new) not in (None, _kind(old))", "False", "numbers of another scaling stay"),
        ("if k not in names or k in given", "", "the file's name of a field counts"),
    ),
    *plant(
        "jax_engine/models/checkpoints/gguf/header.py",
        OVERRIDES,
        ("scaling = scaling or {", "scaling = {", "factors hide the scaling"),
    ),
]
