"""The flags about how close to the reference a result must be."""

from __future__ import annotations

from typing import Annotated, Any

from tvmscope.cli.flags.option import given, option
from tvmscope.messages import _

_TIME = _("How to measure")


def tolerances(
    rtol: Annotated[
        float | None,
        option(
            _TIME,
            "--rtol",
            "--tolerance",
            metavar="X",
            min=0.0,
            help=_("Largest accepted relative error, max|a-b| / max|reference|."),
            default=_("1e-4, in half precision 2e-2"),
        ),
    ] = None,
    atol: Annotated[
        float | None,
        option(
            _TIME,
            "--atol",
            metavar="X",
            min=0.0,
            help=_("Accepted absolute error, added to the relative one."),
            default="0",
        ),
    ] = None,
) -> dict[str, Any]:
    return given(tolerance=rtol, atol=atol)
