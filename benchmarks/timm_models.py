"""Networks of timm, one of each family, as a suite beside OpenVINO and ONNX Runtime.

    python -m pip install --no-deps timm
    python benchmarks/timm_models.py [-o FOLDER] [--models repvit_m1,...] [options of `suite`]

Weights are random, and batch norms have the statistics of a random image: without these, the values
of a deep network leave the range in which a comparison says something.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

MODELS = (
    "coat_tiny", "convnext_atto_rms", "cspnext_tiny", "deit_tiny_patch16_224", "dla46x_c",
    "edgenext_xx_small", "efficientformerv2_s0", "efficientvit_b0", "efficientvit_m0",
    "eva02_tiny_patch14_224", "fasternet_t0", "gcvit_xxtiny", "ghostnet_050", "hgnetv2_b0",
    "iformer_s", "inception_next_atto", "levit_128s", "mambaout_femto", "mixer_s16_224",
    "mobileone_s1", "mobilevit_xxs", "nf_regnet_b0", "pvt_v2_b0", "repghostnet_050", "repvit_m1",
    "resnest26d", "rexnet_100", "sequencer2d_s", "shvit_s1", "skresnet18", "starnet_s050",
    "swiftformer_xs", "tiny_vit_5m_224", "xcit_nano_12_p8_224",
)  # fmt: skip
PROBLEM = """
import timm
import torch
from torch import nn

NAME = "{name}"


def calibrate(norm, given):
    (x,) = given
    axes = [axis for axis in range(x.dim()) if axis != 1]
    if x.numel() > x.shape[1]:
        norm.running_mean.copy_(x.mean(axes))
        norm.running_var.copy_(x.var(axes, unbiased=False) + 1e-3)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.network = timm.create_model(NAME).eval()
        for name, parameter in self.network.named_parameters():
            if parameter.abs().max() == 0:
                parameter.data.normal_(0, 0.02)
            elif "gamma" in name and parameter.abs().max() < 1e-2:
                parameter.data.uniform_(0.1, 0.5)
        norms = (nn.BatchNorm1d, nn.BatchNorm2d)
        found = [module for module in self.network.modules() if isinstance(module, norms)]
        hooks = [norm.register_forward_pre_hook(calibrate) for norm in found]
        with torch.no_grad():
            self.network(get_inputs()[0])
        for hook in hooks:
            hook.remove()

    def forward(self, x):
        return self.network(x)


def get_inputs():
    torch.manual_seed(1)
    return [torch.randn(1, *timm.get_pretrained_cfg(NAME).input_size)]
"""


def main() -> None:
    """Write the problems and run the suite."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", default="results/suite-timm")
    parser.add_argument("--models", default=",".join(MODELS))
    given, more = parser.parse_known_args()
    suite = [str(Path(sys.executable).with_name("tvmscope")), "suite"]
    with TemporaryDirectory() as folder:
        for name in given.models.split(","):
            Path(folder, f"{name}.py").write_text(PROBLEM.format(name=name))
        backends = ["--backends", "tvmscope,openvino,onnxruntime", "--duration", "1s"]
        subprocess.run([*suite, folder, *backends, "-o", given.output, *more], check=True)


if __name__ == "__main__":
    main()
