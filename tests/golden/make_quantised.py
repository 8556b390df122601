"""Asks the packages of weight formats what small matrices are in them; writes quantised.npz.

They need PyTorch, so this runs apart from the tests (see `make_hf_goldens`):

    python3.11 -m venv /tmp/quantised
    /tmp/quantised/bin/pip install torch==2.13.0 transformers numpy loguru pydantic
    /tmp/quantised/bin/pip install --no-deps compressed-tensors==0.20.0 auto-gptq==0.7.1
    /tmp/quantised/bin/pip install --no-deps bitsandbytes==0.50.2
    /tmp/quantised/bin/python -m tests.golden.make_quantised

An array's name is that of its case, a slash, and that of its tensor; `weight` is what the package
decodes. auto-gptq is read from its file alone: what its `__init__` imports is long gone.
"""

import importlib.util
from pathlib import Path

import numpy as np
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from compressed_tensors.compressors import (
    FloatQuantizationCompressor,
    IntQuantizationCompressor,
    MXFP4PackedCompressor,
    NVFP4PackedCompressor,
    PackedQuantizationCompressor,
    unpack_fp4_from_uint8,
)
from compressed_tensors.compressors.mx_utils import compress_mx_scale
from compressed_tensors.entrypoints.convert import AutoAWQConverter
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

OUT = Path(__file__).parent / "quantised.npz"
N, ROWS, K, GROUP = 32, 16, 64, 32  # GPTQ has a multiple of 32 outputs


def main() -> None:
    torch.manual_seed(0)
    cases = gptq() | awq() | compressed_tensors() | floats() | nf4()
    flat = {
        f"{case}/{name}": value.numpy()
        for case, arrays in cases.items()
        for name, value in arrays.items()
    }
    np.savez_compressed(OUT, **flat)
    print(OUT.stat().st_size, *flat)


def gptq() -> dict[str, dict[str, torch.Tensor]]:
    """Each width with act-order: codes and zero points at random, the latter at least 1."""
    path = Path(importlib.util.find_spec("auto_gptq").origin).parent
    spec = importlib.util.spec_from_file_location(
        "qlinear_cuda", path / "nn_modules" / "qlinear" / "qlinear_cuda.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cases = {}
    for bits in (2, 3, 4, 8):
        layer = module.QuantLinear(bits, GROUP, K, N, False, weight_dtype=torch.float32)
        zeros = torch.randint(1, 2**bits, (K // GROUP, N))
        scales = (torch.rand(K // GROUP, N) + 0.5).half().float()
        g_idx = layer.g_idx[torch.randperm(K)]
        codes = torch.randint(0, 2**bits, (K, N))
        linear = torch.nn.Linear(K, N, bias=False)
        linear.weight.data = (scales[g_idx] * (codes - zeros[g_idx])).T.contiguous()
        layer.pack(linear, scales.T.contiguous(), zeros.T.contiguous().float(), g_idx)
        cases[f"gptq{bits}"] = {
            "qweight": layer.qweight,
            "qzeros": layer.qzeros,
            "scales": layer.scales.half(),
            "g_idx": layer.g_idx,
            "weight": layer(torch.eye(K)).T,
        }
    return cases


def awq() -> dict[str, dict[str, torch.Tensor]]:
    """Words at random: AutoAWQ itself is no longer kept up, but others read its checkpoints."""
    words = torch.randint(-(2**31), 2**31, (K + K // GROUP, ROWS // 8)).int()
    qweight, qzeros = words[:K], words[K:]
    scales = torch.rand(K // GROUP, ROWS).half()
    unpacked = AutoAWQConverter.unpack_awq(qweight, qzeros, 4)
    codes, zeros = (x & 15 for x in AutoAWQConverter.reverse_awq_order(*unpacked, 4))
    group = torch.arange(K) // GROUP
    weight = (scales[group].float() * (codes - zeros[group])).T
    return {"awq": {"qweight": qweight, "qzeros": qzeros, "scales": scales, "weight": weight}}


def compressed_tensors() -> dict[str, dict[str, torch.Tensor]]:
    """Rows of 64 numbers at random, in two groups or in one."""
    cases = {}
    for name, compressor, bits, symmetric, group in (
        ("packed4", PackedQuantizationCompressor, 4, True, GROUP),
        ("packed4_zeros", PackedQuantizationCompressor, 4, False, GROUP),
        ("packed3_zeros", PackedQuantizationCompressor, 3, False, GROUP),
        ("packed8", PackedQuantizationCompressor, 8, True, None),
        ("int8", IntQuantizationCompressor, 8, True, None),
        ("int8_zeros", IntQuantizationCompressor, 8, False, None),
    ):
        strategy = "channel" if group is None else "group"
        args = QuantizationArgs(
            num_bits=bits, type="int", symmetric=symmetric, strategy=strategy, group_size=group
        )
        cases[name] = _compress(compressor, QuantizationScheme(targets=["Linear"], weights=args))
    return cases


def floats() -> dict[str, dict[str, torch.Tensor]]:
    """E4M3 for each output and for blocks that do not divide the matrix, and both kinds of FP4."""
    cases = {}
    for name, strategy, block in (
        ("fp8_channel", "channel", None),
        ("fp8_block", "block", [12, 48]),
    ):
        args = QuantizationArgs(num_bits=8, type="float", strategy=strategy, block_structure=block)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        x = torch.randn(ROWS, K)
        scale = torch.rand(*((ROWS, 1) if block is None else (2, 2))) / 100
        tensors = {"weight": x, "weight_scale": scale}
        stored = FloatQuantizationCompressor.compress(tensors, scheme)
        weight = FloatQuantizationCompressor.decompress(stored, scheme)["weight"]
        codes = stored["weight"].view(torch.uint8)
        cases[name] = {"x": x, "codes": codes, "scale": scale, "weight": weight}
    return cases | {"nvfp4": _fp4(NVFP4PackedCompressor), "mxfp4": _fp4(MXFP4PackedCompressor)}


def nf4() -> dict[str, dict[str, torch.Tensor]]:
    """With and without double quantisation; the last block has 18 numbers, and few are exact."""
    cases = {}
    for name, nested in (("nf4", False), ("nf4_nested", True)):
        x = torch.randn(6, 67)
        weight, state = quantize_4bit(x, quant_type="nf4", compress_statistics=nested)
        cases[name] = {"x": x, "codes": weight, "absmax": state.absmax, "quant_map": state.code}
        cases[name]["weight"] = dequantize_4bit(weight, state)
        if nested:
            cases[name]["nested_absmax"] = state.state2.absmax
            cases[name]["nested_quant_map"] = state.state2.code
            cases[name]["nested_offset"] = state.offset
    return cases


def _fp4(compressor) -> dict[str, torch.Tensor]:
    """Decoded in float32: the compressors do it in bfloat16."""
    mx = compressor is MXFP4PackedCompressor
    strategy, size = ("group", 32) if mx else ("tensor_group", 16)
    args = QuantizationArgs(num_bits=4, type="float", strategy=strategy, group_size=size)
    x = torch.randn(ROWS, K)
    largest = x.reshape(ROWS, -1, size).abs().amax(-1)
    if mx:
        scale, global_scale = 2.0 ** (torch.floor(torch.log2(largest)) - 2), None
    else:
        global_scale = generate_gparam(x.min(), x.max())
        scale = (largest * global_scale / 6).to(torch.float8_e4m3fn).float()
    tensors = {"weight": x, "weight_scale": scale, "weight_global_scale": global_scale}
    stored = compressor.compress(tensors, QuantizationScheme(targets=["Linear"], weights=args))
    numbers = unpack_fp4_from_uint8(stored["weight_packed"], ROWS, K, torch.float32)
    weight = dequantize(numbers, scale, None, args, torch.float32, global_scale)
    codes = compress_mx_scale(scale, torch.uint8) if mx else scale.to(torch.float8_e4m3fn)
    known = {"x": x, "weight_packed": stored["weight_packed"], "weight": weight}
    known["weight_scale"] = codes.view(torch.uint8)
    return known if mx else known | {"weight_global_scale": global_scale}


def _compress(compressor, scheme: QuantizationScheme) -> dict[str, torch.Tensor]:
    x = torch.randn(ROWS, K)
    grouped = x.reshape(ROWS, -1, scheme.weights.group_size or K)
    scale, zero = calculate_qparams(grouped.amin(-1), grouped.amax(-1), scheme.weights)
    tensors = {"weight": x, "weight_scale": scale, "weight_zero_point": zero.to(torch.int8)}
    compressed = compressor.compress(tensors, scheme)
    weight = compressor.decompress(compressed, scheme)["weight"]
    stored = compressed.pop("weight", None)
    return compressed | {"x": x, "weight": weight} | ({} if stored is None else {"codes": stored})


if __name__ == "__main__":
    main()
