"""Weight formats: which arrays hold a matrix, and how products are computed with them.

format.py    the interface of every format: arrays, packing, products, rows
dense.py     one array [out, in]: on GPUs, and on CPUs without kernels
panels.py    packed for the CPU's kernels
w8a8.py, w8a8_dense.py
             int8 weights whose products take activations in int8: for those kernels, and for XLA

transforms.py, row_orders.py, tensor_source.py
             how an array is made of a checkpoint's tensors

`jax_engine/operations/formats.py` chooses the formats for a device and a dtype. A new format, such
as a quantisation, is a new file.
"""
