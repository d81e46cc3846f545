"""The flags about where results go and how they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tvmscope.cli.flags.option import given, names, option
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg

_OUT = msg("Output")


def place(
    output: Annotated[
        Path | None,
        option(_OUT, "--output", "-o", metavar="PATH", help=_("Write this file or folder.")),
    ] = None,
    force: Annotated[bool, option(_OUT, "--force", help=_("Overwrite existing files."))] = False,
) -> dict[str, Any]:
    return given(output=output, force=force)


def speech(
    json: Annotated[
        bool,
        option(_OUT, "--json", help=_("Print JSON on stdout; text for people stays on stderr.")),
    ] = False,
    quiet: Annotated[
        bool, option(_OUT, "--quiet", "-q", help=_("Print no text for people."))
    ] = False,
    verbose: Annotated[
        bool,
        option(_OUT, "--verbose", "-v", help=_("Print more detail, and tracebacks of errors.")),
    ] = False,
) -> dict[str, Any]:
    return given(json=json, quiet=quiet, verbose=verbose)


def results(
    export_times: Annotated[
        Path | None,
        option(
            _OUT, "--export-times", metavar="FILE", help=_("Write every measured time as JSON.")
        ),
    ] = None,
    percentile: Annotated[
        list[str] | None,
        option(
            _OUT,
            "--percentile",
            metavar="90,99",
            help=_("Show percentiles where there are enough samples."),
        ),
    ] = None,
    redact: Annotated[
        bool,
        option(
            _OUT, "--redact", help=_("Print and export without host name, user name and folders.")
        ),
    ] = False,
) -> dict[str, Any]:
    percentiles = tuple(f"p{p.removeprefix('p')}" for p in names(percentile))
    for p in percentiles:
        if p not in ("p90", "p99"):
            raise UsageError(
                msg("unknown percentile '{given}'; use 90 or 99 (the median is 50)", given=p[1:])
            )
    return given(export_times=export_times, percentiles=percentiles, redact=redact)


def planning(
    dry_run: Annotated[
        bool, option(_OUT, "--dry-run", help=_("Print what would be done, and do nothing."))
    ] = False,
) -> dict[str, Any]:
    return given(dry_run=dry_run)
