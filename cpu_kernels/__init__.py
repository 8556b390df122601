"""Kernels for a CPU: Numba functions that XLA calls in the middle of a compiled step.

    attention.attention          paged attention of a ragged batch
    kv_write.store               stores keys and values in their slots
    linear.linear                x @ weight.T with packed weights (`panels.py`)
    gated_linear.gated_linear    silu(x @ gate.T) * (x @ up.T)
    rms_norm.add_rms_norm        residual addition and RMS norm
    draw.draw                    temperature, top-k, top-p, min-p and the draw of a token
    zeros.zeros                  an array of zeros that takes no memory until it is written

Needs numba and jax. `availability.failure()` compiles the kernels, or says why they cannot run
here. Importing the package itself loads nothing.
"""
