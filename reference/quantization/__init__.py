"""Weight formats that people publish, decoded from their layouts, and quantisers for each.

A quantised weight is a small *code* for each number, and numbers that many codes share: a scale, as
a rule, and often a zero point or a minimum. Formats differ in which numbers are shared by how many,
and in how bits lie in bytes. Decoding gives float32, by the operations that the format's own
package does, so that both agree bit by bit. K is a matrix's inputs, N its outputs, G its groups.

    `bits`                 codes of a few bits in bytes and words
    `steps`                a range of numbers, cut into equal steps
    `small_floats`         floats of 4 and 8 bits
    `gguf`                 tensors of llama.cpp: rows of blocks
    `gguf_blocks`          its simple blocks, of 32 numbers
    `gguf_k`               its K-quants, of 256 numbers, whose scales are quantised, too
    `gptq`                 2 to 8 bits in a stream, zero points, inputs in act-order
    `awq`                  4 bits in an order of their own
    `compressed_tensors`   integers, packed or not
    `fp8`                  E4M3 with scales for the whole, for outputs, or for blocks
    `mxfp4`                E2M1 with powers of two
    `nvfp4`                E2M1 with scales in E4M3
    `nf4`                  bitsandbytes: a table of 16 numbers, scales that may be quantised, too
    `squeezellm`           a table for each output, and a sparse matrix of outliers
    `smoothquant`          weights and activations of 8 bits
"""
