"""Kernels for a CPU: Numba functions that XLA calls in the middle of a compiled step.

    attention/paged_attention.py   paged attention of a ragged batch
    attention/bidirectional_attention.py    attention of whole sequences, without a cache
    linear/linear.py               x @ weight.T, and activation(x @ gate.T) * (x @ up.T), also with
                                   rows in groups, each with its own weight. Weights are numbers
                                   (linear/float_weights.py), codes of 4 or 8 bits
                                   (linear/coded_weights.py), or int8 with rows of x rounded to int8
                                   (linear/w8a8_weights.py)
    low_rank/add_low_rank.py       out + B (A x), for rows with adapters; low_rank/gate.py: in gates
    norms.py                       residual addition and RMSNorm or LayerNorm
    sampling/draw.py               temperature, the filters and the draw of a token
    kv_write.py                    stores keys and values in their slots
    block_copy.py                  reads and writes whole blocks
    zeros.py                       an array of zeros that takes no memory until it is written
    meeting/gather.py              what each of several processes has, for all of them

The kernels use:

    calls/        `@cpu_kernel`, XLA's call frame, and the threads that share a call's work
    simd/         everything that emits LLVM: vectors, memory by address, tiles of products
    compiling/    Numba's compilers and cache, and whether the kernels run on this machine

The package needs numba and jax. Importing `cpu_kernels` itself imports neither.
"""
