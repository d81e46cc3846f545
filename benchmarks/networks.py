"""Networks that are not built in, beside four peers: ratios, and kernels that no rule took.

    python benchmarks/networks.py [--models swin_t,vgg16] [--duration 4s] [--threads N]

The networks are torchvision's, one of each family; the peers are PyTorch, torch.compile, ONNX
Runtime and OpenVINO. A kernel with arithmetic that fell through to the fallback schedule is named
with its share of all arithmetic.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from cpu import _row

import tvmscope
from tvmscope.core.stats import geometric_mean
from tvmscope.parsing import parse_duration_s
from tvmscope.runtime.artifact import META, read, read_kernels

NETWORKS = (
    "convnext_tiny", "swin_t", "densenet121", "shufflenet_v2_x1_0", "regnet_y_400mf",
    "inception_v3", "mnasnet1_0", "squeezenet1_1", "maxvit_t", "vgg16", "resnext50_32x4d",
    "efficientnet_v2_s",
)  # fmt: skip
BACKENDS = ("tvmscope", "torch", "torch-compile", "onnxruntime", "openvino")
_WORTH_NAMING = 0.002


def fallen(folder: Path) -> str:
    """The kernels of an artifact that the fallback schedule took, with their share of the work."""
    calls: dict[str, int] = {}
    for call in read(folder).kernels:
        calls[call.kernel] = calls.get(call.kernel, 0) + 1
    work = {k.name: (k.flops or 0.0) * calls.get(k.name, 1) for k in read_kernels(folder)}
    total = sum(work.values()) or 1.0
    found = [k.name for k in read_kernels(folder) if k.rule in (None, "fallback")]
    named = [(work[n] / total, n) for n in found if work[n] / total >= _WORTH_NAMING]
    return ", ".join(f"{name} {share:.1%}" for share, name in sorted(named, reverse=True))


def main() -> None:
    """Measure one network after the other, and print as it goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--duration", default="4s")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    print(f"| model | {' | '.join(BACKENDS)} | against the best peer |")
    print("|---" * (len(BACKENDS) + 2) + "|")
    ratios, remarks = [], []
    for name in args.models.split(","):
        with TemporaryDirectory() as folder:
            session = tvmscope.bench(
                f"torchvision:{name}",
                target="cpu",
                backends=BACKENDS,
                duration_s=parse_duration_s(args.duration),
                threads=args.threads,
                db="none",
                offline=True,
                output=Path(folder) / "session",
            )
            ratios.append(_row(name, session, BACKENDS))
            for meta in Path(folder).rglob(META):
                if said := fallen(meta.parent):
                    remarks.append(f"{name}: fallback: {said}")
    known = [ratio for ratio in ratios if ratio is not None]
    if known:
        print(f"\ngeometric mean against the best peer: {geometric_mean(known):.2f}x")
        print(f"least: {min(known):.2f}x")
    print("\n".join(remarks))


if __name__ == "__main__":
    main()
