"""Weight formats: which arrays hold a matrix, and how products are computed with them.

matrix.py        a weight as a layer sees it, and the arrays that hold it
format.py        the interface of every format: arrays, packing, products, rows
dense.py         one array [out, in]: on GPUs, and on CPUs without kernels
panels.py        packed for the CPU's kernels: numbers, or codes
coded.py         codes of quantised weights, for XLA
coded_stacks.py  the same for a GPU's kernel
w8a8.py          int8 weights whose products take activations in int8: for the CPU's kernels, and
                 for XLA
low_rank.py      adapters of a weight

transforms.py, tensor_source.py
                 how an array is made of a checkpoint's tensors
codes.py, code_sources.py
                 rows of codes, and how they are read of a checkpoint

`jax_engine/operations/table.py` chooses the formats for a device and a dtype. A new format, such
as a quantisation, is a new file.
"""
