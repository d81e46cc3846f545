#!/usr/bin/env bash
# The CPU promise on a machine with many cores, in under 8 minutes: ResNet-50 at 1 to 16 threads and
# five more models at 1 and all, beside ONNX Runtime; kernel by kernel; ResNet-50 at one thread in
# turns with its core's own roof; then direct convolutions tile by tile. All code was compiled elsewhere:
#   python scripts/cpu_models.py cpu-models
#   python benchmarks/tiles.py --target cpu:emeraldrapids --save cpu-models/tiles-1
# usage: scripts/cpu_check.sh MODELS [OUTPUT_FOLDER]   (PYTHON names the interpreter)
# MODELS is that folder, or a tar archive of it; TVM's runtime, onnx, onnxruntime and a C compiler
# are needed. LIMIT and TILES_LIMIT are seconds.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
models=${1:?usage: scripts/cpu_check.sh MODELS [OUTPUT_FOLDER]}
out=${2:-${OUT:-results}/cpu-check}
mkdir -p "$out"
if [ -f "$models" ]; then
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    tar xf "$models" -C "$unpacked"
    models=$(echo "$unpacked"/*)
    echo "unpacked after $SECONDS s"
fi
"$python" scripts/cpu_check.py "$models" --output "$out" --limit "${LIMIT:-280}" \
    --duration "${DURATION:-1.5}" 2>&1 | tee "$out/log.txt"
failed=$?
"$python" scripts/cpu_roof.py "$models/resnet50" >"$out/roof.md" 2>&1 || cat "$out/roof.md"
for tiles in "$models"/tiles-*; do
    [ -d "$tiles" ] || continue
    threads=${tiles##*-}
    for kind in "" --cold; do
        "$python" benchmarks/tiles.py --load "$tiles" --threads "$threads" $kind \
            --limit "${TILES_LIMIT:-40}" >>"$out/tiles.md" 2>&1
    done
done
find "$out" -mindepth 1 -type d -exec rm -rf {} +   # sessions.tar.xz has what is to be kept
echo "all done in $SECONDS s, results in $out"
exit $failed
