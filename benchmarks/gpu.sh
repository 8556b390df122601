#!/usr/bin/env bash
# The kernels and the engine on this machine's GPU: each in under nine minutes, or by itself.
#   bash benchmarks/gpu.sh [--only kernels|engine] [--smoke] [--budget SECONDS] [--output FOLDER]
# Leaves DEVICE.json and .md (kernels), DEVICE-engine.json and .md (engine) in benchmarks/results/gpu/,
# written again after every measurement. The budget is each one's own.
# PYTHON names the interpreter: one with jax and its CUDA plugin; .venv's by default, else python3.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
[ -x "$(command -v "$python")" ] || python=python3
# The tests, PyTorch and the models run beside the first process and need most of the card's memory.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
only="kernels engine" budget=500 rest=()
while [ $# -gt 0 ]; do
  case "$1" in
    --only) only="$2"; shift 2 ;;
    --budget) budget="$2"; shift 2 ;;
    *) rest+=("$1"); shift ;;
  esac
done
failed=0
for part in $only; do
  case "$part" in
    kernels) module=benchmarks.gpu ;;
    engine) module=benchmarks.gpu.engine ;;
    *) echo "--only takes kernels or engine, not $part" >&2; exit 2 ;;
  esac
  timeout --signal=INT $((${budget%.*} + 35)) \
    "$python" -m "$module" --budget "$budget" ${rest[@]+"${rest[@]}"} || failed=1
done
exit "$failed"
