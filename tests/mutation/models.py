"""Bugs in how models are read (configurations, names, GGUF's layout, heads), and in guides."""

from tests.mutation.planting import Mutant, plant

FOLDER = "jax_engine/models"
DECODER = ("tests/models/test_decoder.py", "-k transformers")
SAFETENSORS = ("tests/models/test_safetensors.py",)
GGUF = ("tests/models/test_gguf.py", "tests/models/test_gguf_architectures.py")
OLD_TOKENIZERS = ("tests/tokenization/test_old_tokenizers.py",)
VARIANTS = ("tests/models/test_variants.py",)
WRONG = ("tests/models/test_wrong_values.py",)
HEADS = ("tests/engine/test_heads.py",)
REFUSED = ("tests/models/test_refused_variants.py",)
GUIDED = ("tests/guided/test_compiler.py",)

LOADING: list[Mutant] = [
    *plant(
        f"{FOLDER}/families/llama.py",
        DECODER,
        ('for name in "qkv"]', 'for name in "kqv"]', "keys are taken for queries"),
        ('("gate", "up")', '("up", "gate")', "gate and up are swapped"),
    ),
    *plant(
        f"{FOLDER}/checkpoints/checkpoint.py",
        SAFETENSORS,
        (
            "if config.spec.tied:",
            "if False:",
            "a head stored twice is refused",
        ),
    ),
    *plant(
        f"{FOLDER}/checkpoints/checkpoint.py",
        ("tests/models/test_fuzz_files.py", *SAFETENSORS),
        ("if found != shape:", "if len(found) != len(shape):", "any size will do"),
    ),
    *plant(
        f"{FOLDER}/weight_loader.py",
        ("tests/weights/test_loading.py",),
        (
            "name: array[index]",
            "name: array[index[:0] + (0,) * len(index)]",
            "all layers on the first one's place",
        ),
    ),
    *plant(
        f"{FOLDER}/checkpoints/gguf/architectures.py",
        GGUF,
        (
            "rope_halves(k, spec.num_kv_heads",
            "rope_halves(k, spec.num_heads",
            "keys in as many heads as queries",
        ),
        (
            "renormalise if declared is None else declared",
            "renormalise",
            "what a file says of experts is not read",
        ),
    ),
    *plant(
        f"{FOLDER}/checkpoints/gguf/header.py",
        GGUF,
        (
            "self.fields.head_count_kv or self.fields.head_count",
            "self.fields.head_count",
            "as many heads of keys as of queries",
        ),
        ('not self.has("output.weight")', "False", "a tied head is missing"),
        ("layer % pattern != 0", "layer % pattern == 0", "the window on the other layers"),
    ),
    *plant(
        f"{FOLDER}/checkpoints/gguf/header.py",
        GGUF,
        (
            "own = 1.0 + 0.1 * float(np.log(factor))",
            "own = 1.0",
            "llama.cpp's factor replaces YaRN's",
        ),
    ),
    *plant(
        f"{FOLDER}/checkpoints/gguf/gguf_source.py",
        GGUF,
        ("if undo is not None:", "if False:", "llama.cpp's order of rows is kept"),
        ("if shape != expected:", "if False:", "parts are read beyond their ends"),
    ),
    *plant(
        f"{FOLDER}/checkpoints/gguf/gguf_tensors.py",
        GGUF,
        ("first = (element or 0) *", "first = 0 *", "all experts are the first one"),
    ),
    *plant(
        f"{FOLDER}/checkpoints/gguf/architectures.py",
        GGUF,
        (
            '"norm": lambda spec, stored: AddOne(stored, -1)',
            '"norm": lambda spec, stored: stored',
            "one is added to Gemma's norms twice",
        ),
        ("if fields.block_count == largest:", "if False:", "the 27B's scale is the others'"),
    ),
    *plant(
        f"{FOLDER}/checkpoints/gguf/architectures.py",
        GGUF,
        ("(queries, 1, 1)", "(1, queries, 1)", "Falcon's keys are taken for queries"),
    ),
    *plant(
        "jax_engine/tokenization/old_tokenizers.py",
        OLD_TOKENIZERS,
        ("(byte & 0x7F) << shift", "byte << shift", "numbers keep their mark of more to come"),
        ("squeezes=bool(normalizer.get(4", "squeezes=bool(normalizer.get(3", "the wrong setting"),
    ),
    *plant(
        "jax_engine/tokenization/old_tokenizers.py",
        OLD_TOKENIZERS,
        ("if found != index:", "if False:", "added tokens with other ids than they should have"),
        ("range(0, -len(tokens), -1)", "range(len(tokens))", "the rarest merges come first"),
    ),
    *plant(
        "jax_engine/tokenization/gguf_pre_tokenizers.py",
        ("tests/tokenization/test_tokenizer.py",),
        ("individual_digits=False", "individual_digits=True", "Falcon's digits one by one"),
    ),
    *plant(
        "jax_engine/engine/default_sampling.py",
        ("tests/engine/test_default_sampling.py",),
        (
            'if config.generation_config in ("auto", "vllm"):',
            "if True:",
            "ends of a folder that was named are left out",
        ),
    ),
    *plant(
        f"{FOLDER}/families/llama.py",
        DECODER,
        (
            "tied=bool(fields.tie_word_embeddings)",
            "tied=True",
            "every head is tied",
        ),
        ("fields.num_key_value_heads or heads", "heads", "no grouped queries"),
        (
            "fields.head_dim or fields.hidden_size // heads",
            "fields.hidden_size // heads",
            "head_dim is not read",
        ),
    ),
    *plant(
        f"{FOLDER}/families/mistral.py",
        SAFETENSORS,
        ("sliding_window: Size | None = 4096", "sliding_window: Size | None = None", "no window"),
        ("Size | None = 8", "Size | None = 32", "Mistral's default is another"),
    ),
    *plant(
        f"{FOLDER}/families/hf_config.py",
        SAFETENSORS,
        (
            'scaling.get("rope_type", scaling.get("type"))',
            'scaling.get("rope_type")',
            "the old spelling is not read",
        ),
        (
            'scaling.get("rope_theta", fields.rope_theta)',
            "fields.rope_theta",
            "the new theta is not read",
        ),
    ),
    *plant(
        f"{FOLDER}/families/hf_config.py",
        REFUSED,
        ("if found != value:", "if found is None:", "variants are computed as what they are not"),
    ),
    *plant(
        f"{FOLDER}/families/olmoe.py",
        REFUSED,
        ("clip_qkv=None, sliding", "sliding", "OLMoE's bound is not there"),
    ),
    *plant(
        f"{FOLDER}/weight_loader.py",
        SAFETENSORS,
        (
            "jax.random.fold_in(key, zlib.crc32(leaf.declared.encode()))",
            "key",
            "all leaves get the same numbers",
        ),
    ),
    *plant(
        f"{FOLDER}/hf_fields.py",
        VARIANTS,
        ("and others:", "and False:", "other names of fields are not read"),
        (
            "if one.ropes and int(one.head_dim * factor) != one.rotated:",
            "if False:",
            "a part of heads that the family does not read",
        ),
        ("and key not in read", "and False", "keys of RoPE are overlooked"),
    ),
    *plant(
        f"{FOLDER}/checkpoints/checkpoint.py",
        VARIANTS,
        ("if embedding in names or bare not in names:", "if True:", "bare names are missing"),
        ("name if name in self._heads else", "", "the head is renamed, too"),
    ),
    *plant(
        f"{FOLDER}/checkpoints/checkpoint.py",
        VARIANTS,
        ("num_layers + extra_layers", "num_layers", "GLM-4.5's last layer has no place"),
    ),
    *plant(
        f"{FOLDER}/checkpoints/resolve.py",
        VARIANTS,
        ("    if pickled:", "    if False:", "pickles are not named"),
    ),
    *plant(
        f"{FOLDER}/families/qwen2_moe.py",
        VARIANTS,
        ("n % 2 or n >= last", "n >= last", "every early layer has the window"),
    ),
]

SPECIFICATION: list[Mutant] = [
    *plant(
        f"{FOLDER}/decoder.py",
        ("tests/models/test_specification.py",),
        (
            "index * len(self.places)",
            "index",
            "layers of a pattern share parts of the cache",
        ),
        (
            "(self.first + place)",
            "place",
            "every group begins at the first layer of the cache",
        ),
        (
            "LayerNumbers(index, cache_layer",
            "LayerNumbers(cache_layer, cache_layer",
            "weights by the cache's numbers",
        ),
    ),
    *plant(
        "jax_engine/model_spec.py",
        ("tests/models/test_specification.py",),
        ("range(first + place, last, period)", "range(first + place, last)", "layers read twice"),
        ("self.groups[:group]", "self.groups[:0]", "every group's layers are the first ones"),
        ("len(shapes) != 1", "len(shapes) == 0", "a cache of two shapes is accepted"),
    ),
    *plant(
        f"{FOLDER}/weight_loader.py",
        ("tests/models/test_specification.py",),
        (
            "jnp.asarray(leaf.layers)",
            "jnp.arange(len(leaf.layers))",
            "random numbers depend on the grouping",
        ),
    ),
]

SCORES: list[Mutant] = plant(
    f"{FOLDER}/pooling_heads.py",
    HEADS,
    ("@ self.weight.T + self.bias", "@ self.weight.T", "the bias is not added"),
    ("if logits.shape[-1] == 1:", "if False:", "a single score is always 1"),
    (
        "[np.zeros_like(logits), logits]",
        "[logits, np.zeros_like(logits)]",
        "the sigmoid of minus x",
    ),
    ("or len(named) or 2", "or 2", "labels are counted as two"),
)

GUIDES: list[Mutant] = [
    *plant(
        "jax_engine/guided/guide.py",
        GUIDED,
        ("one.tokens == output[:count]", "True", "a fork goes on from another's grammar"),
        ("self.tokens += tokens", "pass", "tokens are taken twice"),
        (
            "Progress(self.matcher.deep_copy(), list",
            "Progress(self.matcher, list",
            "forks share one state",
        ),
    ),
    *plant(
        "jax_engine/guided/compiler.py",
        GUIDED,
        (
            '"|".join(map(_literal, params.choice))',
            '"|".join(params.choice)',
            "a choice is a regex",
        ),
        (
            "lru_cache(COMPILED_GRAMMARS)(self._compile_grammar)",
            "self._compile_grammar",
            "compiled each time",
        ),
        ("token < known", "token > known", "ends that the tokenizer knows are dropped"),
        ('"gbnf" if EBNF_RULE.search(text) else "lark"', '"lark"', "EBNF is read as Lark"),
        ("(matcher, _asked_for_a_token(matcher))", "(matcher,)", "endless rules are accepted"),
    ),
]

MUTANTS = LOADING + SPECIFICATION + SCORES + GUIDES
