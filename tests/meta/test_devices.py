"""One module of the engine asks which device this is: `jax_engine/operations/`."""

import ast
from pathlib import Path

import pallas_kernels
from tests.meta.trees import ROOT, imported_names, modules

# Names that ask: of JAX's, and those of `pallas_kernels`.
QUESTIONS = {
    "default_backend", "device_kind", "devices", "get_backend", "local_devices", "memory_stats",
    "on_numba", "platform", "platform_dependent", "runs_cpu_kernels", "sm_version", "target_device",
}  # fmt: skip
# What else a file may ask or import, and why.
ALLOWED: dict[str, tuple[set[str], str]] = {
    "compat/stand_ins.py": ({"platform"}, "what vLLM's programs ask for the platform"),
    "models/checkpoints/cache_dir.py": (
        {"cpu_kernels"}, "where the user's cache folder is: the host's own affair"
    ),
    "commands/diagnosis.py": ({"platform"}, "Python's module, which tells of the host"),
    "worker/aot_cases.py": (
        {"pallas_kernels.aot", "platform"}, "compiles steps for devices that it describes"
    ),
    "worker/aot_mesh_cases.py": (
        {"devices", "pallas_kernels.aot"}, "compiles steps for devices that it describes"
    ),
    "worker/fingerprint.py": (
        {"device_kind", "devices", "platform"}, "names all that a KV block's bits hang on"
    ),
    "worker/compilation_cache.py": ({"platform"}, "Python's module, which tells of the host"),
    "parallel/mesh.py": ({"local_devices", "platform"}, "which devices there are to share a model"),
    "engine/startup/device_settings.py": ({"platform"}, "Python's, which tells of the host"),
    "parallel/collectives.py": (
        {
            "cpu_kernels", "pallas_kernels.backends", "pallas_kernels.sum_over_devices",
            "pallas_kernels.tree_sum",
        },
        "memory and kernel by which processes meet, and the sums over a mesh",
    ),
    "layers/experts.py": ({"pallas_kernels.tree_sum"}, "an order of sums, the same everywhere"),
    "processes/runner_client.py": ({"cpu_kernels"}, "that memory, which it makes anew"),
    "weights/dense.py": ({"pallas_kernels.batch_invariant"}, "a weight format of these kernels"),
    "weights/low_rank.py": (
        {"cpu_kernels", "pallas_kernels.low_rank"}, "what kernels take for adapters"
    ),
    "weights/panels.py": ({"cpu_kernels"}, "a weight format of these kernels"),
    "weights/w8a8.py": ({"cpu_kernels"}, "a weight format of these kernels"),
}  # fmt: skip


def questions(path: Path) -> set[str]:
    """Names in a file that ask for the device, and modules that are for the table alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
    imported = imported_names(path)
    found |= {name.rpartition(".")[2] for name in imported if name.startswith(("jax", "pallas"))}
    found &= QUESTIONS
    public = {f"pallas_kernels.{name}" for name in pallas_kernels.__all__}
    for name in imported - public:
        package, *rest = name.split(".")
        if package == "cpu_kernels":
            found.add(package)
        elif package == "pallas_kernels":
            found.add(".".join([package, *rest[:1]]))
    return found


def test_nothing_but_the_table_asks_which_device_this_is() -> None:
    """And what is allowed elsewhere is asked there: an exception goes when its reason does."""
    engine = ROOT / "jax_engine"
    files = [path for path in modules("jax_engine") if path.parent != engine / "operations"]
    asked = {str(path.relative_to(engine)): questions(path) for path in files}
    assert {name: found for name, found in asked.items() if found} == {
        name: allowed for name, (allowed, _) in ALLOWED.items()
    }


def test_the_search_finds_what_the_table_asks() -> None:
    found = {path.name: questions(path) for path in modules("jax_engine/operations")}
    assert found["device.py"] >= {"target_device", "platform", "memory_stats"}
    assert found["table.py"] >= {"runs_cpu_kernels", "pallas_kernels.backends"}
    assert found["numba.py"] == {"cpu_kernels"}
    assert found["xla.py"] == set()
