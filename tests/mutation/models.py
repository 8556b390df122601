"""Bugs in how models are read (configurations, names, GGUF's layout, heads), and in guides."""

from tests.mutation.planting import Mutant, plant

FOLDER = "jax_engine/models"
DECODER = ("tests/models/test_decoder.py", "-k transformers")
SAFETENSORS = ("tests/models/test_safetensors.py",)
GGUF = ("tests/models/test_gguf.py", "tests/models/test_gguf_architectures.py")
OLD_TOKENIZERS = ("tests/tokenization/test_old_tokenizers.py",)
HEADS = ("tests/engine/test_heads.py",)
REFUSED = ("tests/models/test_refused_variants.py",)
GUIDED = ("tests/guided/test_compiler.py",)

LOADING: list[Mutant] = [
    *plant(f"{FOLDER}/families/llama.py", DECODER,
        ('for name in "qkv"]', 'for name in "kqv"]', "keys are taken for queries"),
        ('("gate", "up")', '("up", "gate")', "gate and up are swapped"),
    ),
    *plant(f"{FOLDER}/checkpoints/checkpoint.py", ("tests/models/test_fuzz_files.py", *SAFETENSORS),
        ("if found != shape:", "if len(found) != len(shape):", "any size will do"),
    ),
    *plant(f"{FOLDER}/weight_loader.py", ("tests/weights/test_loading.py",),
        ("name: array[index]", "name: array[index[:0] + (0,) * len(index)]",
         "all layers on the first one's place"),
    ),
    *plant(f"{FOLDER}/checkpoints/gguf/architectures.py", GGUF,
        ("rope_halves(k, spec.num_kv_heads", "rope_halves(k, spec.num_heads",
         "keys in as many heads as queries"),
    ),
    *plant(f"{FOLDER}/checkpoints/gguf/architectures.py", GGUF,
        ('"norm": lambda spec, stored: AddOne(stored, -1)', '"norm": lambda spec, stored: stored',
         "one is added to Gemma's norms twice"),
    ),
    *plant(f"{FOLDER}/checkpoints/gguf/architectures.py", GGUF,
        ("(queries, 1, 1)", "(1, queries, 1)", "Falcon's keys are taken for queries"),
    ),
    *plant("jax_engine/tokenization/old_tokenizers.py", OLD_TOKENIZERS,
        ("range(0, -len(tokens), -1)", "range(len(tokens))", "the rarest merges come first"),
    ),
    *plant(f"{FOLDER}/families/llama.py", DECODER,
        ("tied=bool(fields.tie_word_embeddings)", "tied=True", "every head is tied"),
    ),
    *plant(f"{FOLDER}/families/mistral.py", SAFETENSORS,
        ("sliding_window: Size | None = 4096", "sliding_window: Size | None = None", "no window"),
        ("Size | None = 8", "Size | None = 32", "Mistral's default is another"),
    ),
    *plant(f"{FOLDER}/families/hf_config.py", SAFETENSORS,
        ('scaling.get("rope_type", scaling.get("type"))', 'scaling.get("rope_type")',
         "the old spelling is not read"),
        ('scaling.get("rope_theta", fields.rope_theta)', "fields.rope_theta",
         "the new theta is not read"),
    ),
    *plant(f"{FOLDER}/families/hf_config.py", REFUSED,
        ("if found != value:", "if found is None:", "variants are computed as what they are not"),
    ),
    *plant(f"{FOLDER}/families/olmoe.py", REFUSED,
        ("clip_qkv=None, sliding", "sliding", "OLMoE's bound is not there"),
    ),
    *plant(f"{FOLDER}/weight_loader.py", SAFETENSORS,
        ("jax.random.fold_in(key, zlib.crc32(leaf.declared.encode()))", "key",
         "all leaves get the same numbers"),
    ),
]  # fmt: skip

SPECIFICATION: list[Mutant] = [
    *plant(f"{FOLDER}/decoder.py", ("tests/models/test_specification.py",),
        ("(self.first + place)", "place", "every group begins at the first layer of the cache"),
        ("LayerNumbers(index, cache_layer", "LayerNumbers(cache_layer, cache_layer",
         "weights by the cache's numbers"),
    ),
    *plant("jax_engine/model_spec.py", ("tests/models/test_specification.py",),
        ("range(first + place, last, period)", "range(first + place, last)", "layers read twice"),
        ("self.groups[:group]", "self.groups[:0]", "every group's layers are the first ones"),
        ("len(shapes) != 1", "len(shapes) == 0", "a cache of two shapes is accepted"),
    ),
    *plant(f"{FOLDER}/weight_loader.py", ("tests/models/test_specification.py",),
        ("jnp.asarray(leaf.layers)", "jnp.arange(len(leaf.layers))",
         "random numbers depend on the grouping"),
    ),
]  # fmt: skip

SCORES: list[Mutant] = plant(f"{FOLDER}/pooling_heads.py", HEADS,
    ("[np.zeros_like(logits), logits]", "[logits, np.zeros_like(logits)]",
     "the sigmoid of minus x"),
)  # fmt: skip

GUIDES: list[Mutant] = [
    *plant("jax_engine/guided/guide.py", GUIDED,
        ("Progress(self.matcher.deep_copy(), list", "Progress(self.matcher, list",
         "forks share one state"),
    ),
    *plant("jax_engine/guided/compiler.py", GUIDED,
        ('"|".join(map(_literal, params.choice))', '"|".join(params.choice)',
         "a choice is a regex"),
        ("lru_cache(COMPILED_GRAMMARS)(self._compile_grammar)", "self._compile_grammar",
         "compiled each time"),
        ("(matcher, _asked_for_a_token(matcher))", "(matcher,)", "endless rules are accepted"),
    ),
]  # fmt: skip

MUTANTS = LOADING + SPECIFICATION + SCORES + GUIDES
