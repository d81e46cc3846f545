"""Compares the values inside a model: with its framework's, and before and after a pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.benchmark.verify import mismatch
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.measure.remote import remote
from tvmscope.messages import Text, msg
from tvmscope.workflow.bisecting.prefixes import VALUES, Prefixes

if TYPE_CHECKING:
    import tvmscope.compiler.bisect.reproduce

_FRAMEWORK = remote(lambda: tvmscope.compiler.bisect.reproduce.framework)


@dataclass(frozen=True)
class Divergence:
    """An operator or binding whose values differ."""

    source_ops: tuple[str, ...]
    source: int | None = None
    """The source operator's number."""
    index: int | None = None
    """The binding's number in the module that was run."""
    detail: Text | None = None

    @property
    def text(self) -> Text:
        """The operator in words."""
        return ", ".join(self.source_ops) or msg("an operator of unknown origin")


def after_import(prefixes: Prefixes) -> list[Divergence]:
    """Return the operators whose values differ between the imported model and its framework."""
    theirs, ours = prefixes.scratch / "framework.npz", prefixes.scratch / "imported.npz"
    prefixes.progress.stage(msg("compare"), msg("every operator with the framework"))
    prefixes.call(_FRAMEWORK, str(theirs))
    values = prefixes.call(VALUES, 0, str(ours))
    last = {value.sources: value for value in values}  # an operator's helpers come before it
    found = []
    with np.load(theirs) as expected, np.load(ours) as actual:
        for source in range(len(prefixes.sources)):
            value, name = last.get((source,)), f"{source}.0"
            if value is None or name not in expected.files:
                continue
            detail = _compare(prefixes, actual[str(value.index)], expected[name])
            if detail is not None:
                ops = prefixes.operators((source,))
                found.append(Divergence(ops, source, value.index, detail))
    return found


def not_a_number(prefixes: Prefixes) -> Divergence | None:
    """Return the first operator whose value is NaN, or else infinite, in the framework itself."""
    theirs = prefixes.scratch / "framework.npz"
    prefixes.call(_FRAMEWORK, str(theirs))
    with np.load(theirs) as archive:
        values = {int(name.split(".")[0]): archive[name] for name in archive.files}
    for test in (np.isnan, np.isinf):  # masks contain harmless infinities
        for source, array in sorted(values.items()):
            if array.dtype.kind == "f" and (bad := int(np.count_nonzero(test(array)))):
                detail = msg(
                    "{bad} of {size} values are not finite in the reference itself",
                    bad=bad,
                    size=array.size,
                )
                return Divergence(prefixes.operators((source,)), source, None, detail)
    return None


def between(prefixes: Prefixes, low: int, high: int) -> tuple[list[Divergence], list[int], str]:
    """Return the bindings after `low` passes that have another value after `high`, in order.

    Also return the bindings whose values agree, and the file with the values after `low`. A binding
    is matched by its source operators and its shape; a value whose layout a pass changed is
    skipped.
    """
    files = [str(prefixes.scratch / f"values-{count}.npz") for count in (low, high)]
    try:
        before = prefixes.call(VALUES, low, files[0])
        after = prefixes.call(VALUES, high, files[1])
    except TvmscopeError as e:
        prefixes.progress.note(
            msg("intermediate values cannot be read: {reason}", reason=one_line(e))
        )
        return [], [], ""
    own = {(v.sources, v.shape): v for v in before if v.sources}
    again = {(v.sources, v.shape): v for v in after if v.sources}
    found, known = [], []
    with np.load(files[0]) as expected, np.load(files[1]) as actual:
        for key, value in own.items():
            if key not in again:
                continue
            detail = _compare(prefixes, actual[str(again[key].index)], expected[str(value.index)])
            if detail is None:
                known.append(value.index)
            else:
                ops = prefixes.operators(value.sources)
                found.append(Divergence(ops, value.sources[-1], value.index, detail))
    return sorted(found, key=lambda d: d.index or 0), known, files[0]


def _compare(prefixes: Prefixes, actual: Any, expected: Any) -> Text | None:
    if actual.size == expected.size:  # a scalar may have become a vector of one
        actual = actual.reshape(expected.shape)
    return mismatch(actual, expected, prefixes.tolerance, atol=prefixes.options.atol)
