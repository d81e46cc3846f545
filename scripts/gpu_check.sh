#!/usr/bin/env bash
# Everything the CUDA path promises, in one go on a GPU machine: doctor, then for each model
# compile, verify and bench in fp32 and fp16, with and without CUDA graphs, against PyTorch.
# usage: scripts/gpu_check.sh [OUTPUT_FOLDER]   (PYTHON names the interpreter)
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=${1:-results/gpu-check}
mkdir -p "$out"
failed=0
run() {
    echo "== tvmscope $*"
    local start=$SECONDS
    "$python" -m tvmscope "$@" || { echo "FAILED with code $?: tvmscope $*"; failed=1; }
    echo "-- $((SECONDS - start)) s"
}
run doctor
for model in resnet50 efficientnet_lite0 minilm; do
    backends=tvmscope,torch,torch-compile
    [ "$model" = resnet50 ] && backends=$backends,tvm   # the baseline's build is the slowest
    run analyze "$model" --target cuda --precision float32,float16 --duration 0.6s --no-profile \
        --backends "$backends" --output "$out/$model" --force
    artifact=$(ls -d "$out/$model"/artifacts/tvmscope-cuda-* | head -1)
    [ "$model" = efficientnet_lite0 ] && run run "$artifact" --duration 1s
    rm -rf "$out/$model/artifacts"   # the libraries carry the weights; sessions are what is kept
done
echo "all done in $SECONDS s, sessions in $out"
exit $failed
