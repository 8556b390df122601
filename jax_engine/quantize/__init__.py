"""Quantises a checkpoint: `python -m jax_engine.quantize MODEL OUT --format w4a16`.

    `options`       what is asked for, checked
    `grids`         numbers that codes can stand for, and the nearest of them
    `rounding`      a matrix in codes: each number becomes the nearest one
    `gptq`          a matrix in codes: later numbers make up for the errors of earlier ones
    `awq`           scales for inputs, by the errors of products; ranges that are cut
    `smoothing`     scales for inputs, by the largest of them
    `folding`       what makes the inputs of a matrix, and is divided by the scales
    `scaling`       scales the inputs of a layer
    `layouts`       codes as the tensors of a checkpoint format
    `layers`        the layers of a model, with the tensors that each is made of
    `calibration`   runs one layer at a time, and records the inputs of its matrices
    `recording`     what the products of a layer get
    `statistics`    what is kept of it
    `samples`       tokens to calibrate with
    `safetensors_file`   writes a file of tensors
    `output`        the new directory: shards, and how far an interrupted run has come
    `run`           all of it

K is a matrix's inputs (columns), N its outputs (rows), G its groups of inputs.
"""
