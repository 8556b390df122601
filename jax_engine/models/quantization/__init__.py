"""Quantised checkpoints in Hugging Face layout: matrices that are also read as rows of codes.

    `opening`             which method a checkpoint has, and `open_quantized`
    `source`              the checkpoint with `X.weight` for each quantised module X
    `modules`             which tensors belong together
    `parts`               the tensors of one module, checked before they are read
    `grouped`             a matrix of codes, scales and zero points; as rows or as numbers
    `plain`               a matrix that has no rows of codes, only numbers
    `packing`             small codes in words
    `settings`            what quantization_config says, and how it is refused

and a file for each method: `gptq`, `awq`, `compressed_tensors`, `fp8`, `fp4`, `bitsandbytes` and
`squeezellm`. K is a matrix's inputs (columns), N its outputs (rows), G its groups of inputs.
"""
