#!/usr/bin/env bash
# The kernels on this machine's GPU: tests, then measurements, in under nine minutes.
#   bash benchmarks/gpu.sh [--smoke] [--budget SECONDS] [--output FOLDER]
# Leaves benchmarks/results/gpu/DEVICE.json and .md, written again after every measurement.
# PYTHON names the interpreter: one with jax and its CUDA plugin; .venv's by default, else python3.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
[ -x "$(command -v "$python")" ] || python=python3
# The tests and PyTorch run beside the measurements' process and need some of the card's memory.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec timeout --signal=INT 535 "$python" -m benchmarks.gpu "$@"
