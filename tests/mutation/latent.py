"""Bugs in latent attention: its layer, its cache, its families, and the oracle's own."""

from tests.mutation.planting import Mutant, plant

LITE = ("tests/models/test_families.py", "-k i39 and deepseek_v2_lite")
GROUPS = ("tests/models/test_families.py", "-k i39 and deepseek_v2 and not lite")
KERNELS = ("tests/kernels/test_paged_attention.py", "-k in_the_keys and (xla or numba)")
ORACLE = ("tests/reference/test_latent_attention.py", "-mnot hypothesis")

MUTANTS: list[Mutant] = [
    *plant("jax_engine/layers/latent_attention.py", LITE,
        ("self.v_up_slots, latents, batch, numbers.layer",
         "self.v_up_slots, latents, batch, numbers.cache_layer",
         "values by another layer's matrix"),
        ("out[..., : self.latent.kv_rank]", "out[..., -self.latent.kv_rank :]",
         "the rotated part is taken for values"),
        ("apply_rotary(shared, angles)", "shared", "the shared part of keys is not rotated"),
    ),
    *plant("jax_engine/models/families/latent.py", LITE,
        ("_sharpened(rope) ** 2", "_sharpened(rope)", "YaRN sharpens queries, but not keys"),
    ),
    *plant("jax_engine/layers/experts.py", GROUPS,
        ("min(spec.judged, experts", "min(2, experts", "V2's groups are judged by two experts"),
    ),
    *plant("pallas_kernels/call.py", KERNELS,
        ("self.kv_cache.shape[1] - 1", "1", "values are read where there are none"),
    ),
    *plant("cpu_kernels/attention/pages.py", KERNELS,
        ("min(which, work.kv - 1)", "which", "values are read from the next layer"),
    ),
    *plant("reference/latent_attention.py", ORACLE,
        ("np.repeat(shared[:, None]", "np.repeat(0 * shared[:, None]", "keys are not rotated"),
        ("eps=sizes.eps", "eps=0.01", "another epsilon"),
    ),
    *plant("reference/experts.py", ORACLE,
        ("[-config.experts_judged :]", "[-2:]", "every group is judged by two experts"),
    ),
]  # fmt: skip
