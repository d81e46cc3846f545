"""The manifest of a command: a function, plus the flag groups it takes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from tvmscope.cli.show import Show
from tvmscope.messages import Text, _, msg, render
from tvmscope.runtime.tvm_compat import require

Group = Callable[..., dict[str, Any]]
_INJECTED = ("options", "show")

START, MEASURE, DEPLOY, RESULTS = msg("Start here"), msg("Measure"), msg("Deploy"), msg("Results")
PANELS = (START, MEASURE, DEPLOY, RESULTS)
"""The headings of `tvmscope --help`, in order; others come after them."""


@dataclass(frozen=True)
class Command:
    """A command's manifest; its name is its file's, its help the function's docstring."""

    run: Callable[..., int | None]
    """Takes its own parameters, and `options: Options`, `show: Show` built from the groups."""
    groups: tuple[Group, ...]
    panel: Text
    """The heading of the command in `tvmscope --help`, one of `PANELS`."""
    needs: tuple[str, ...] = ()
    """Modules of extras that the command cannot work without; they are checked first."""


@dataclass(frozen=True)
class Family:
    """Commands under one name (`tvmscope db list`); a member's name is its function's."""

    help: Text
    members: tuple[Command, ...]
    panel: Text


def bind(command: Command, name: str) -> Callable[..., int]:
    """Return a function with all flags as parameters, the shape that typer reads."""
    own = inspect.signature(command.run, eval_str=True).parameters
    groups = {group: inspect.signature(group, eval_str=True).parameters for group in command.groups}
    parameters = [p for p in own.values() if p.name not in _INJECTED]
    parameters += [p for flags in groups.values() for p in flags.values()]

    def call(**values: Any) -> int:
        require(*command.needs, why=f"tvmscope {name}")
        fields: dict[str, Any] = {}
        for group, flags in groups.items():
            fields |= group(**{name: values[name] for name in flags})
        injected = {name: value for name, value in _split(fields).items() if name in own}
        mine = {name: values[name] for name in own if name not in _INJECTED}
        return command.run(**mine, **injected) or 0

    keyword_only = [_said(p).replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    # typer reads this attribute, which the type of functions does not have
    call.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    doc = inspect.getdoc(command.run)
    call.__doc__ = _(doc) if doc else None
    return call


def _said(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a flag with its texts in the user's language; module-level texts were made before it
    was chosen."""
    if get_origin(parameter.annotation) is not Annotated:
        return parameter
    kind, flag, *more = get_args(parameter.annotation)
    flag = copy.copy(flag)
    for field in ("help", "rich_help_panel", "show_default"):
        if isinstance(text := getattr(flag, field, None), str):
            setattr(flag, field, render(text))
    return parameter.replace(annotation=Annotated[kind, flag, *more])


def _split(fields: dict[str, Any]) -> dict[str, Any]:
    """Pass flags about showing to `Show`, all others to `Options`; `redact` goes to both."""
    from tvmscope.stages.options import Options

    shown = {f.name for f in dataclasses.fields(Show)}
    line = shlex.join(["tvmscope", *sys.argv[1:]])
    options = {k: v for k, v in fields.items() if k not in shown or k == "redact"}
    return {
        "show": Show(**{k: v for k, v in fields.items() if k in shown}),
        "options": Options.of(command=line, **options),
    }
