"""Compiles a model with Apache TVM, verifies it, and measures it against common runtimes.

This is the small public API; everything heavy is imported when a function is called, so that
`import tvmscope` stays light.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvmscope.core.artifact import Artifact
    from tvmscope.core.session import Session

__version__ = "0.1.0"
__all__ = ["analyze", "bench", "compile", "load_artifact"]


def load_artifact(
    path: str | Path, *, threads: int | None = None, device: str | None = None
) -> Any:
    """Load an artifact folder and return a callable that takes numpy arrays or DLPack tensors.

    `device` chooses among several GPUs: `"cuda:1"`.
    """
    from tvmscope.runtime.dynamic import load_any

    return load_any(Path(path), threads, device)


def compile(  # noqa: A001 - the name users expect, as in torch.compile
    model: Any, output: str | Path, *, inputs: Sequence[Any] | None = None, **options: Any
) -> Artifact:
    """Compile a model (name, path or `nn.Module` with example `inputs`) into an artifact folder.

    `options` are the fields of `tvmscope.stages.options.Options`.
    """
    from tvmscope.stages.options import Options
    from tvmscope.workflow.compile import compile_model

    return compile_model(model, Path(output), Options.of(inputs=inputs, **options))


def bench(
    models: Any, *, inputs: Sequence[Any] | None = None, **options: Any
) -> Session | list[Session]:
    """Measure a model on every backend; several models give a list of sessions."""
    from tvmscope.stages.options import Options
    from tvmscope.workflow.bench import bench_models

    several = isinstance(models, list | tuple)
    sessions = bench_models(
        list(models) if several else [models],
        Options.of(inputs=inputs, **{"profile": False, **options}),
    )
    return sessions if several else sessions[0]


def analyze(model: Any, *, inputs: Sequence[Any] | None = None, **options: Any) -> Session:
    """Compile, verify and measure a model; the session is saved under `results/` or `output`."""
    from tvmscope.stages.options import Options
    from tvmscope.workflow.analyze import analyze as run

    return run(model, Options.of(inputs=inputs, **options))
