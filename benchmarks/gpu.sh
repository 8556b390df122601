#!/usr/bin/env bash
# The kernels, their tuning and the engine on this machine's GPU: each in under nine minutes, or one.
#   bash benchmarks/gpu.sh [--only kernels|tune|engine] [--smoke] [--budget SECONDS] [--output FOLDER]
# Leaves DEVICE.json and .md (kernels), DEVICE-tests.txt (their tests), tuning_table.json (tune) and
# DEVICE-engine.json and .md (engine) in benchmarks/results/gpu/, written again after every
# measurement. The budget is each part's own. Nothing need be installed but the dependencies.
# PYTHON names the interpreter: one with jax and its CUDA plugin; .venv's by default, else python3.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
[ -x "$(command -v "$python")" ] || python=python3
# The tests, PyTorch and the models run beside the first process and need most of the card's memory.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
# On a CPU, a smoke run's interpreted kernels need more of XLA's threads than small machines have cores.
case " $* " in *" --smoke "*) export NPROC="${NPROC:-16}" ;; esac
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
only="kernels tune engine" budget=500 output=benchmarks/results/gpu rest=()
while [ $# -gt 0 ]; do
  case "$1" in
    --only) only="$2"; shift 2 ;;
    --budget) budget="$2"; shift 2 ;;
    --output) output="$2"; shift 2 ;;
    *) rest+=("$1"); shift ;;
  esac
done
failed=0 modules=()
for part in $only; do
  case "$part" in
    kernels) module=benchmarks.gpu ;;
    tune) module=benchmarks.tune_kernels ;;
    engine) module=benchmarks.gpu.engine ;;
    *) echo "--only takes kernels, tune or engine, not $part" >&2; exit 2 ;;
  esac
  # What is missing is said before anything is run, and the parts that can do without it run.
  if "$python" -m benchmarks.gpu.needs "$part"; then modules+=("$module"); else failed=1; fi
done
for module in ${modules[@]+"${modules[@]}"}; do
  timeout --signal=INT $((${budget%.*} + 35)) "$python" -m "$module" \
    --budget "$budget" --output "$output" ${rest[@]+"${rest[@]}"} || failed=1
done
exit "$failed"
