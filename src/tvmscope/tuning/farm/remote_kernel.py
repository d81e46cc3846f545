"""Runs a built kernel on a server of the farm; called in a client process, which TVM may end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.errors import RunError, one_line
from tvmscope.messages import Text, msg
from tvmscope.runtime import tvm_compat
from tvmscope.tuning.farm.tracker import Place
from tvmscope.tuning.trials.kernels import Arguments, changed, fill

if TYPE_CHECKING:
    from tvm.rpc import RPCSession
    from tvm.runtime import Module, Tensor

_NAME = "kernel.so"
_LONGEST_SHARE = 0.5
"""The share of the time limit for all values together; the rest is for the upload."""
_EXPIRED, _THERE = "RPCSessionTimeoutError", "Error caught from RPC call:"
"""Parts of TVM's messages: the time was over, and the server's side raised."""


DESCRIBE = "tvmscope.farm.describe"
"""A function of our servers that TVM's own servers lack."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A kernel, its arguments and its time limit."""

    library: Path
    args: Arguments
    seed: int
    device: str
    timeout_s: float


@dataclass(frozen=True)
class Answer:
    """The result, or how the connection was lost, which may not be the kernel's fault."""

    value: Any = None
    lost: Text | None = None
    began: bool = True
    """Whether the kernel was already loaded when the connection was lost."""


def measure(place: Place, job: Job, repeat: int, min_repeat_ms: float) -> Answer:
    """Return `repeat` values in seconds; fewer if the time limit does not suffice."""

    def work(session: RPCSession, module: Module, tensors: list[Tensor]) -> tuple[float, ...]:
        device = session.device(job.device)
        once = module.time_evaluator("main", device, number=1, repeat=1)
        each_s = max(float(once(*tensors).results[0]), min_repeat_ms * 1e-3)
        fitting = max(1, min(repeat, int(_LONGEST_SHARE * job.timeout_s / each_s)))
        evaluator = module.time_evaluator(
            "main", device, number=1, repeat=fitting, min_repeat_ms=ceil(min_repeat_ms)
        )
        return tuple(float(value) for value in evaluator(*tensors).results)

    return _on(place, job, work)


def outputs(place: Place, job: Job) -> Answer:
    """Return the arguments that one call changes."""

    def work(
        session: RPCSession, module: Module, tensors: list[Tensor]
    ) -> list[np.ndarray[Any, Any]]:
        module["main"](*tensors)
        session.device(job.device).sync()
        return list(changed(fill(job.args, job.seed), [t.numpy() for t in tensors]).values())

    return _on(place, job, work)


def describe(place: Place, timeout_s: float) -> Answer:
    """Return the server's description (a `Device` as JSON); None from TVM's plain server."""

    def work(session: RPCSession) -> str | None:
        try:
            return str(session.get_function(DESCRIBE)())
        except AttributeError:  # TVM's plain server has no such function
            return None

    return _with_session(place, timeout_s, work)


def _on(
    place: Place, job: Job, work: Callable[[RPCSession, Module, list[Tensor]], object]
) -> Answer:
    """Upload, load, fill the arguments and call `work`."""

    def prepare(session: RPCSession) -> object:
        from tvm import runtime

        session.upload(str(job.library), _NAME)
        module = session.load_module(_NAME)
        device = session.device(job.device)
        tensors = [runtime.tensor(array, device) for array in fill(job.args, job.seed)]
        return work(session, module, tensors)

    return _with_session(place, job.timeout_s, prepare)


def _with_session(place: Place, timeout_s: float, work: Callable[[RPCSession], object]) -> Answer:
    """Return the result of `work`; raise RunError if the kernel caused a failure."""
    tvm_compat.import_tvm(torch=False)
    from tvm import rpc

    try:
        session = rpc.connect(place.host, place.port, place.match_key, session_timeout=timeout_s)
    except Exception as e:  # TVM has no class of its own for it, and it may be any of several
        return Answer(lost=msg("no connection: {reason}", reason=one_line(e)), began=False)
    try:
        return Answer(work(session))
    except RunError:
        raise
    except Exception as e:  # as above; its message tells the cause
        text = str(e)
        if _EXPIRED in text:
            raise RunError(
                msg(
                    "{place}: the kernel took over {timeout_s:g} s",
                    place=str(place),
                    timeout_s=timeout_s,
                )
            ) from e
        if _THERE in text:
            gist = one_line(RuntimeError(text.rpartition(_THERE)[2]))
            raise RunError(msg("{place}: {gist}", place=str(place), gist=gist)) from e
        return Answer(lost=one_line(e))
