"""Quantised checkpoints in Hugging Face layout: matrices that are also read as rows of codes.

    `quantized_source`    which method a checkpoint has, `open_quantized`, and the checkpoint with
                          `X.weight` for each quantised module X
    `method`              what a method says: its fields, and which tensors belong together
    `matrices`            a matrix of codes, scales and zero points; as rows or as numbers

and a file for each method: `gptq`, `awq`, `compressed_tensors`, `fp8`, `fp4`, `modelopt`,
`bitsandbytes` and `squeezellm`. K is a matrix's inputs (columns), N its outputs (rows), G its
groups of inputs.
"""
