#!/usr/bin/env bash
# What a GPU has to tell, in calls of at most 560 seconds: `docs/gpu.md` says how.
#   bash benchmarks/gpu.sh [--failed] [--only STEP ...] [--budget SECONDS] [--output FOLDER] [--smoke]
# Nothing need be installed but the dependencies. PYTHON names the interpreter: one with jax and its
# CUDA plugin; .venv's by default, else python3. Wheels in the folder that WHEELS names are installed
# for this run only: what the machine lacks and cannot fetch.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
[ -x "$(command -v "$python")" ] || python=python3
# On a CPU, a smoke run's interpreted kernels need more of XLA's threads than small machines have.
case " $* " in *" --smoke "*) export NPROC="${NPROC:-16}" ;; esac
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
if [ -n "${WHEELS:-}" ]; then
  site="$(mktemp -d)"
  trap 'rm -rf "$site"' EXIT
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$WHEELS"/*.whl
  export PYTHONPATH="$site:$PYTHONPATH"
fi
"$python" -m benchmarks.gpu "$@"
