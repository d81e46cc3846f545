"""Reads a user's own list of passes from a file that is named on the command line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import tvm

from tvmscope.errors import UsageError, one_line
from tvmscope.messages import msg


def user_passes(text: str, tvm_target: tvm.target.Target) -> list[tvm.transform.Pass]:
    """Run `file.py:function(target)`; it returns a pass or a list of passes.

    This executes the file: it is the user's own code, named on the command line.
    """
    file, colon, function = text.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise UsageError(
            msg("pipeline '{text}' is neither tvm nor tvmscope nor file.py:function", text=text)
        )
    spec = importlib.util.spec_from_file_location("tvmscope_user_pipeline", file)
    if spec is None or spec.loader is None or not Path(file).is_file():
        raise UsageError(msg("pipeline file {file} cannot be read", file=file))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    make = getattr(loaded, function, None)
    if make is None:
        raise UsageError(msg("{file} has no function '{function}'", file=file, function=function))
    try:
        made = make(tvm_target) if callable(make) else make
        passes = [made] if isinstance(made, tvm.transform.Pass) else list(made)
    except Exception as e:  # the user's own code may raise anything
        raise UsageError(
            msg(
                "{text} fails: {error}: {reason}; it must be a function(target) that returns a "
                "pass or a list of passes",
                text=text,
                error=type(e).__name__,
                reason=one_line(e),
            )
        ) from e
    if not passes or not all(isinstance(p, tvm.transform.Pass) for p in passes):
        raise UsageError(msg("{text} returns neither a pass nor a list of passes", text=text))
    return passes
