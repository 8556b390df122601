"""Bugs in reading adapters: names, fields, shapes, row orders, and the digest."""

from tests.mutation.planting import Mutant, plant

ADAPTER = ("tests/lora/test_adapter.py",)
CONFIG = ("tests/lora/test_peft_config.py",)
PEFT = ("tests/lora/test_peft.py",)
GGUF = ("tests/lora/test_gguf.py",)
PATTERNS = ("tests/lora/test_patterns.py",)

MUTANTS: list[Mutant] = [
    *plant("jax_engine/lora/adapter.py", ADAPTER,
        ("    return _unpacked(native.tobytes(), native.dtype, array.shape)\n",
         "    return native\n", "the caller's own arrays are kept"),
    ),
    *plant("jax_engine/lora/peft_config.py", CONFIG,
        ("    rank = rank_of(fields, name)\n    return", "    rank = fields.r\n    return",
         "the scaling does not know rank_pattern"),
        ("if excluded and _is_among", "if not excluded and _is_among",
         "exclude_modules is overlooked"),
        ('module.kind in ("linear", "experts", "router")', 'module.kind != "embedding"',
         "all-linear adapts the head"),
        ('name == end or name.endswith(f".{end}")', "name.endswith(end)",
         "a part of a name is a name"),
        ("and not _says_nothing(value)", "and value is True", "unknown fields are overlooked"),
        ("    if init is not None and init not in _PLAIN_INITS:\n",
         "    if init is not None and init == 'pissa':\n", "PiSSA's short forms are overlooked"),
        ("targets.lower() == ALL_LINEAR", "targets == ALL_LINEAR", "all-linear in capitals"),
    ),
    *plant("jax_engine/lora/peft.py", PEFT,
        ('"a" if "A" in (found["part"], found["embedding"]) else "b"',
         '"b" if "A" in (found["part"], found["embedding"]) else "a"', "A and B are exchanged"),
        ("        if rank > max_lora_rank:\n", "        if rank > max_lora_rank + 1:\n",
         "a rank above the limit"),
    ),
    *plant("jax_engine/lora/adapter_tensors.py", PEFT,
        ('    if not tensors.keys() >= {"a", "b"}:\n', '    if "a" not in tensors:\n',
         "A without B"),
    ),
    *plant("jax_engine/lora/adapter_tensors.py", PEFT,
        ('native = array.dtype.newbyteorder("=")', "native = array.dtype",
         "the other byte order is refused"),
    ),
    *plant("jax_engine/lora/gguf_adapter.py", GGUF,
        ("tensor.load()[rows.order]", "tensor.load()", "rows of q and k stay in llama.cpp's order"),
        ("tensor.load()[rows.order]", "tensor.load()[np.argsort(rows.order)]",
         "rows are reordered the other way round"),
    ),
    *plant("jax_engine/lora/peft_config.py", PATTERNS,
        ("        found = places\n", "        found = places | frozenset((place,))\n",
         "fewer repetitions than the least"),
        ("return negated != any", "return any", "negated sets"),
        ('rf"(.*\\.)?({pattern})", name, field', 'rf".*\\.({pattern})", name, field',
         "a name in full does not match"),
    ),
    *plant("reference/lora.py", ("tests/reference/test_lora.py", "reference/lora.py"),
        ("scaling * (b.astype(np.float64) @ a.astype(np.float64))",
         "(b.astype(np.float64) @ a.astype(np.float64))", "the scaling is left out"),
        ("before + one.scaling * one.bias", "before + one.bias", "a bias is not scaled"),
        ("new.T if one.name in stored_turned else new", "new", "an embedding is left turned"),
    ),
]  # fmt: skip
