"""Quantises a checkpoint: `python -m jax_engine.quantize MODEL OUT --format w4a16`.

    `options`         what is asked for, checked
    `rounding`        a matrix in codes: grids, round to nearest, GPTQ
    `input_scales`    scales of a matrix's inputs: AWQ, SmoothQuant, and what takes the scales up
    `float_model`     the layers of a model, with the tensors that each is made of
    `calibration`     runs one layer at a time, and records the inputs of its matrices
    `layouts`         codes as the tensors of a checkpoint format
    `shards`          the new directory: its files, and how far an interrupted run has come
    `run`             all of it

K is a matrix's inputs (columns), N its outputs (rows), G its groups of inputs.
"""
