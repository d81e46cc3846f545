"""The device of a job: one of several GPUs, for its workers and for what this process asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from tvmscope.core.target import Target
from tvmscope.errors import UsageError
from tvmscope.machine import cuda_device
from tvmscope.messages import msg
from tvmscope.parsing import parse_device
from tvmscope.runtime.check import gpu_number
from tvmscope.stages.options import Options

P = ParamSpec("P")
R = TypeVar("R")


def on_device(job: Callable[P, R]) -> Callable[P, R]:
    """Make a job run on the device that its options name."""

    @wraps(job)
    def run(*args: P.args, **kw: P.kwargs) -> R:
        (options,) = (given for given in (*args, *kw.values()) if isinstance(given, Options))
        with using(options.device):
            return job(*args, **kw)

    return run


@contextmanager
def using(device: str | None) -> Iterator[None]:
    """Run what is inside on a device; raise if it names a GPU that does not exist."""
    with cuda_device.chosen(gpu_number(device)):
        yield


def check_device(options: Options, targets: Iterable[Target]) -> None:
    """Raise if the requested device would not run what the targets name."""
    if options.device is None:
        return
    kind, found = parse_device(options.device)[0], [target.device for target in targets]
    if kind not in found or (kind == "cpu" and "cuda" in found):
        raise UsageError(
            msg(
                "--device {device} does not run what is compiled for {targets}; give a --target "
                "of the same kind, or --device alone",
                device=options.device,
                targets=list(options.targets),
            )
        )
