"""Determines the requested targets of a job, and the threads that every backend gets."""

from __future__ import annotations

from tvmscope.compiler import targets
from tvmscope.core.target import Target, distinct
from tvmscope.errors import UsageError
from tvmscope.machine import cpu_features
from tvmscope.messages import msg
from tvmscope.stages.device import check_device
from tvmscope.stages.options import Options
from tvmscope.stages.places import cache_folder


def threads_of(options: Options) -> int:
    """Return the thread count that every backend gets."""
    if options.threads is not None and options.threads < 1:
        raise UsageError(msg("--threads {threads}: give at least 1", threads=options.threads))
    return options.threads or cpu_features.usable_cores()


def resolve_targets(options: Options) -> tuple[Target, ...]:
    """Return all requested targets, each once and with a unique label."""
    cores = threads_of(options)
    found = distinct(
        targets.resolve(text, cores=cores, cache=cache_folder()) for text in options.targets
    )
    check_device(options, found)
    return found
