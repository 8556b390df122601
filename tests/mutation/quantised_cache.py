"""Bugs in the 8-bit KV cache: its codes, its scales, its size, its moves, and the oracle's own."""

from tests.mutation.planting import Mutant, plant

ENGINE = ("tests/properties/test_quantised_cache.py", "-k codes or i34 or not_the_model")
ORACLE = ("tests/reference/test_kv_cache.py", "-k 8_bit or quantised")
LATENTS = ("tests/reference/test_latent_attention.py", "-k 8_bits")
SCALES = ("tests/worker/test_kv_scales.py",)
CHECKPOINT = ("tests/models/test_cache_scales.py",)
BUILD = ("tests/engine/test_build.py",)
MOVES = ("tests/kernels/test_block_copy.py", "-k numba")
DECODE = ("tests/kernels/test_numba.py", "-k every_number")

MUTANTS: list[Mutant] = [
    *plant("jax_engine/layers/attention.py", ENGINE,
        ("            kv_scales=scales,\n", "            kv_scales=scales * 2,\n",
         "read by others"),
    ),
    *plant(
        "jax_engine/worker/compiled_steps.py",
        ("tests/properties/test_quantised_cache.py", "-k codes"),
        ("            kv_scales=kv_scales,\n            prompt_lens",
         "            kv_scales=kv_scales[::-1],\n            prompt_lens",
         "each layer has another layer's scales"),
    ),
    *plant("jax_engine/worker/kv_cache.py", SCALES,
        ("HEADROOM / LARGEST[name]", "1 / LARGEST[name]", "no headroom"),
        ("max(axis=(2, 4, 5))", "max(axis=(2, 3, 4, 5), keepdims=True)[:, :, 0, :, 0, 0]",
         "one scale for all heads"),
    ),
    *plant("jax_engine/models/checkpoints/cache_scales.py", CHECKPOINT,
        ("scales[int(match[1]), which] = ", "scales[int(match[1])] = ",
         "one scale for keys and values"),
        ("not in (1, heads)", "not in (1, heads, heads + 1)", "more scales than heads"),
    ),
    *plant("jax_engine/engine/startup/engine_memory.py", BUILD,
        ("    dtype = resolve_cache_dtype(config)\n    block",
         "    dtype = resolve_dtype(config.dtype)\n    block", "blocks as large as the model's"),
    ),
    *plant("jax_engine/engine/startup/build.py", BUILD,
        ("            cache_dtype=cache_dtype,\n", "            cache_dtype=dtype,\n",
         "the setting does nothing"),
    ),
    *plant(
        "jax_engine/engine/startup/device_settings.py",
        ("tests/models/test_latent.py", "-k int8_is_refused"),
        ('config.kv_cache_dtype == "int8" and', 'config.kv_cache_dtype == "int4" and',
         "latents share a scale"),
    ),
    *plant("cpu_kernels/block_copy.py", MOVES,
        ("(place * blocks + block) * size\n        copy(call.data",
         "(block + place) * size\n        copy(call.data", "blocks of one place only"),
        ("if 0 <= block < blocks:", "if block < blocks:", "padding is written before the cache"),
        ("max(call.ids.int32[item], 0)", "call.ids.int32[item] + 1", "the next block is read"),
        ("shape[3] * shape[4] * shape[5] * item_bytes", "shape[3] * shape[4] * item_bytes",
         "a part of a block"),
    ),
    *plant("cpu_kernels/simd/products.py", DECODE,
        ("INT8 = Numbers(widened_int8,", "INT8 = Numbers(widened_float8,",
         "int8 is read as float8"),
        ("FLOAT8 = Numbers(widened_float8, 1", "FLOAT8 = Numbers(widened_float8, 2",
         "every second number"),
    ),
    *plant("cpu_kernels/attention/decode.py", DECODE,
        ("work.kind != structs.FLOAT16 and work.dim == work.width", "work.dim == work.width",
         "float16 is read as float8"),
    ),
    *plant("reference/kv_cache.py", ORACLE,
        ("np.clip(np.rint(quotient), -128, 127)", "np.clip(quotient, -128, 127)",
         "int8 keeps fractions"),
        ("np.clip(np.rint(quotient), -128, 127)", "np.rint(quotient)", "int8 has no end"),
        ("self.scales[layer, which], self.kind", "self.scales[layer, 0], self.kind",
         "values take the keys' scales"),
    ),
    *plant("reference/latent_attention.py", LATENTS,
        ("dequantize(stored, kv_scales[layer, 0])", "dequantize(stored, kv_scales[0, 0])",
         "the first layer's scale"),
    ),
]  # fmt: skip
