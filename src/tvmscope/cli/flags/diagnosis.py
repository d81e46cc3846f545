"""The flags about explaining a result and acting on it."""

from __future__ import annotations

from typing import Annotated, Any

from tvmscope.cli.flags.option import given, option
from tvmscope.messages import _, msg

_WHY = msg("What to do with the result")


def profiling(
    profile: Annotated[
        bool,
        option(
            _WHY,
            "--profile/--no-profile",
            help=_("Also time every kernel, after the comparison."),
            default=_("profile"),
        ),
    ] = True,
) -> dict[str, Any]:
    return {"profile": profile}


def fixing(
    fix: Annotated[
        bool,
        option(
            _WHY,
            "--fix",
            help=_("Try the fixes of the findings; keep those that are correct and faster."),
        ),
    ] = False,
) -> dict[str, Any]:
    return given(fix=fix)
