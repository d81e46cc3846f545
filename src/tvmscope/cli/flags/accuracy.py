"""The flags about how close to the reference a result must be."""

from __future__ import annotations

from typing import Annotated, Any

from tvmscope.cli.flags.option import given, option
from tvmscope.messages import _, msg

_TIME = msg("How to measure")


def tolerances(
    rtol: Annotated[
        float | None,
        option(
            _TIME,
            "--rtol",
            "--tolerance",
            metavar="X",
            min=0.0,
            help=_("Accept this relative error at most: max|a-b| / max|reference|."),
            default=_("1e-4; 2e-2 in half precision"),
        ),
    ] = None,
    atol: Annotated[
        float | None,
        option(
            _TIME,
            "--atol",
            metavar="X",
            min=0.0,
            help=_("Also accept this absolute error, which is added to the relative one."),
            default="0",
        ),
    ] = None,
) -> dict[str, Any]:
    return given(tolerance=rtol, atol=atol)
