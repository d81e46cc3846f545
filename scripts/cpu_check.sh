#!/usr/bin/env bash
# The CPU promise on a machine with many cores, in under 8 minutes: ResNet-50 at 1 to 16 threads and
# five more models at 1 and all, beside ONNX Runtime; then direct convolutions tile by tile.
# usage: scripts/cpu_check.sh [OUTPUT_FOLDER] [MODELS_FOLDER]   (PYTHON names the interpreter)
# MODELS_FOLDER holds what `scripts/cpu_models.py pack` wrote; it needs onnx, onnxruntime and TVM.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=${1:-${OUT:-results}/cpu-check}
models=${2:-results/cpu-models}
mkdir -p "$out"
[ -d "$models" ] && "$python" scripts/cpu_models.py grow "$models"
"$python" scripts/cpu_check.py --output "$out" --models "$models" --limit "${LIMIT:-330}" \
    --duration "${DURATION:-1.5}"
failed=$?
"$python" benchmarks/tiles.py --threads 1 --limit "${TILES_LIMIT:-100}" | tee "$out/tiles.md"
rm -rf "$out"/*/artifacts   # the libraries carry the weights; sessions are what is kept
echo "all done in $SECONDS s, sessions in $out"
exit $failed
