"""Bugs in which files of a model are read, and in what they say of tokens and embeddings."""

from tests.mutation.planting import Mutant, plant

FILES = ("tests/models/test_weight_files.py",)
PICKLES = ("tests/models/test_pytorch_files.py", "-mnot hypothesis")
MISTRAL = ("tests/models/test_mistral_format.py",)
BROKEN = ("tests/models/test_broken_folders.py",)
POOLING = ("tests/engine/test_pooling.py", "tests/models/test_pooling_recipe.py")
RANKING = ("tests/engine/test_ranking_prompt.py", "tests/engine/test_ranking.py")
ENDS = ("tests/models/test_gguf_ends.py",)
TEMPLATES = ("tests/tokenization/test_chat_templates.py",)
TOKENS = ("tests/tokenization/test_added_tokens.py",)

MUTANTS: list[Mutant] = [
    *plant("jax_engine/models/checkpoints/files_source.py", FILES,
        ("index, opened = None, {whole", "opened = {whole", "a stale index counts"),
    ),
    *plant("jax_engine/models/checkpoints/pytorch/state_dict.py", PICKLES,
        ("if end > held:", "if end > held + 1:", "a tensor may end beyond its storage"),
    ),
    *plant("jax_engine/models/checkpoints/pytorch/pickle_reader.py", PICKLES,
        ("if type(key) not in _KEYS:", "if False:", "a key may hold any number of values"),
    ),
    *plant("jax_engine/models/checkpoints/pytorch/zip_archive.py", PICKLES,
        ("if check and zlib.crc32(held) != member.crc:", "if False:", "no checksum is compared"),
    ),
    *plant("jax_engine/models/checkpoints/mistral_names.py", MISTRAL,
        ("pairs.swapaxes(1, 2).reshape(found.shape)", "pairs.reshape(found.shape)",
         "rows of queries and keys stay in Mistral's order"),
    ),
    *plant("jax_engine/models/checkpoints/resolve.py", BROKEN,
        ("if len(found) == 1 else", "if found else", "one of several models is named"),
        ("if not is_of_macos(one)", "if one", "macOS's file beside one of GGUF makes two"),
    ),
    *plant("jax_engine/models/model_config.py", POOLING,
        ('1: "MEAN", 2: "CLS"', '1: "CLS", 2: "MEAN"', "llama.cpp's numbers are swapped"),
        ("normalize=scales)\n\n", "normalize=True)\n\n", "what is not scaled is scaled"),
    ),
    *plant("jax_engine/engine/pooling/pooling.py", POOLING,
        ("np.arange(1, len(tokens) + 1)", "np.arange(len(tokens))", "weights begin with 0"),
        ("for token in self._head.reads]", "for token in self._head.reads[::-1]]",
         "the query's vector comes before those of its documents"),
        ("self._is_read[item.start : item.start + item.num_tokens]", "self._is_read[: len(own)]",
         "each chunk is read as if it were the first"),
    ),
    *plant("jax_engine/models/families/jina_ranking.py", RANKING,
        ('f"< {token[1:]}"', "token", "a token inside of another one is left in a text"),
    ),
    *plant("jax_engine/engine/pooling/ranking.py", RANKING,
        ("if found != [num_documents, 1]:", "if found[1] != 1:", "a cut takes documents away"),
        ("vectors[:-1] @ vectors[-1]", "vectors[1:] @ vectors[0]", "the query is the first vector"),
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
