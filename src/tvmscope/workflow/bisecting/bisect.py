"""Finds the first pass and the first source operator that make a result wrong, and proves it.

load -> run the model after all passes, and after none -> search the first bad prefix
-> compare the values inside -> cut out the operator -> run it alone
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from tvmscope.core.diagnosis.bisection import Bisection, Outcome
from tvmscope.core.measurement import Accuracy
from tvmscope.core.model import Prepared
from tvmscope.core.precision import FLOAT32
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError, UsageError, one_line
from tvmscope.measure.remote import remote
from tvmscope.messages import Message, Text, msg, msgn
from tvmscope.progress import Progress, Silent
from tvmscope.report.terminal.bisection import headline
from tvmscope.stages import places
from tvmscope.stages.load import loaded
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import with_export
from tvmscope.stages.targets import resolve_targets
from tvmscope.workflow.bisecting import divergence
from tvmscope.workflow.bisecting.divergence import Divergence
from tvmscope.workflow.bisecting.prefixes import TIMEOUT_S, VALUES, Prefixes, first_bad

if TYPE_CHECKING:
    import tvmscope.compiler.bisect.prefixes
    import tvmscope.compiler.bisect.reproduce

_CHANGED_KERNELS = remote(lambda: tvmscope.compiler.bisect.prefixes.changed_kernels)
_KERNEL_FACTS = remote(lambda: tvmscope.compiler.bisect.prefixes.kernel_facts)
_WRITE_OPERATOR = remote(lambda: tvmscope.compiler.bisect.reproduce.write_operator)
_WRITE_MODEL = remote(lambda: tvmscope.compiler.bisect.reproduce.write_model)
_WRITE_PAIR = remote(lambda: tvmscope.compiler.bisect.reproduce.write_pair)

MOST_TRIES = 8
"""Operators that are run alone before the whole model is used: each takes some seconds."""
CHEAP_BUILD_S = 10.0
"""Models that compile faster than this are bisected without a request."""
SCRIPT = "reproduce.py"


def bisect(model: Any, options: Options, progress: Progress | None = None) -> Bisection:
    """Find where `model` goes wrong; write a reproducer into the output folder."""
    progress = progress or Silent()
    started = datetime.now(UTC)
    if options.output is not None:
        places.claim(options.output, force=options.force, marker=SCRIPT)
    where = resolve_targets(options)
    if len(where) != 1 or len(options.precisions) != 1:
        raise UsageError(msg("bisect takes one --target and one --precision"))
    if where[0].kind != "llvm":
        raise UsageError(
            msg("bisect runs every prefix of the pipeline on the CPU: give --target cpu")
        )
    with loaded(model, with_export(options, wanted=False), progress) as ready:
        folder = options.output or places.session_folder(
            f"{ready.model.name}-bisect", where[0].device, started
        )
        return bisect_prepared(ready, where[0], options, folder, progress)


def bisect_prepared(
    ready: Prepared, target: Target, options: Options, folder: Path, progress: Progress
) -> Bisection:
    """Do the same for a model that is already loaded."""
    with TemporaryDirectory(prefix="tvmscope-") as scratch:
        prefixes = Prefixes(ready, target, options, Path(scratch), progress)
        try:
            return _Search(prefixes, folder).run()
        finally:
            prefixes.close()


def explain_wrong_rows(
    session: Session, ready: Prepared, options: Options, folder: Path, progress: Progress
) -> tuple[Text, ...]:
    """Return for failed compiled rows the first operator that diverges, or the command to find it.

    The search runs only if the model compiles quickly, and once: rows of one model are mostly wrong
    for one reason.
    """
    lines: list[Text] = []
    for row in session.results:
        target = next((t for t in session.targets if t.label == row.task.target), None)
        variant = row.task.variant
        if row.status != "wrong" or variant.pipeline is None or target is None:
            continue
        own = replace(
            options,
            precisions=(variant.precision,),
            compile=replace(options.compile, pipeline=variant.pipeline),
        )
        say = msg(
            "{row} is wrong; find where with: {command}",
            row=row.task.label,
            command=command_for(session, own, target),
        )
        if not lines and target.kind == "llvm" and (row.build_s or CHEAP_BUILD_S) < CHEAP_BUILD_S:
            try:
                found = bisect_prepared(ready, target, own, folder, progress)
                say = _told(row.task.label, found, folder)
            except TvmscopeError as e:  # the measured rows must not be lost because of it
                progress.note(msg("bisect: {reason}", reason=one_line(e)))
        progress.note(say)
        lines.append(say)
    return tuple(lines)


def _told(row: str, found: Bisection, folder: Path) -> Message:
    """Describe the result of a search, for the session's warnings."""
    what = headline(found)
    if found.outcome == "nothing":
        what = msg("correct when it is built and run again: a race condition, or a bad link")
    if not found.reproduced:
        return msg("{row} is wrong: {what}", row=row, what=what)
    script = f"{folder}/{SCRIPT}"
    return msg("{row} is wrong: {what} (python {script})", row=row, what=what, script=script)


def command_for(session: Session, options: Options, target: Target) -> str:
    """Return the command that bisects a row of a session."""
    load, words = options.load, ["tvmscope", "bisect", session.model.source]
    asked = options.targets[0] if len(options.targets) == 1 and target.kind == "llvm" else "cpu"
    words += [] if asked == "auto" else ["--target", asked]
    if options.precisions != (FLOAT32,):
        words += ["--precision", *map(str, options.precisions)]
    if options.compile.pipeline != "tvmscope":
        words += ["--pipeline", options.compile.pipeline]
    for name, shape in load.shapes.items():
        words += ["--shapes", f"{name}:{'x'.join(map(str, shape))}"]
    if load.batch_size is not None:
        words += ["--batch-size", str(load.batch_size)]
    if load.inputs_file is not None:
        words += ["--inputs", load.inputs_file]
    words += [part for name in options.compile.disabled_passes for part in ("--disable-pass", name)]
    return shlex.join(words)


def _scheduled(count: int, total: int) -> Message:
    return msg("{count} of {total} kernels scheduled", count=count, total=total)


class Cut(NamedTuple):
    """The part of a model for a reproducer: the states of two prefixes, one binding of them or all,
    and its input values."""

    low: int
    high: int
    binding: int | None = None
    known: Sequence[int] = ()
    values: str = ""
    kernel: str | None = None


class _Search:
    def __init__(self, prefixes: Prefixes, folder: Path) -> None:
        self.prefixes = prefixes
        self.folder = folder.absolute()

    def run(self) -> Bisection:
        """Search from the whole model to the error in it."""
        prefixes = self.prefixes
        itself = prefixes.check(prefixes.ready.reference_path)
        prefixes.start()
        if not itself.passed:  # the reference does not even verify itself
            at = divergence.not_a_number(prefixes)
            return self._found("reference", itself, at or Divergence((), detail=itself.detail))
        count = len(prefixes.names)
        whole = prefixes.after(count)
        if whole is None:
            why = prefixes.tested[-1].detail or ""
            raise UsageError(msg("the whole model does not run: {why}", why=why))
        if whole.passed:
            return self._found("nothing", whole)
        plain = prefixes.after(0)
        if plain is not None and not plain.passed:
            return self._importer(whole)
        marks = [0, *(i + 1 for i, changed in enumerate(prefixes.changed) if changed)]
        if marks[-1] != count:
            marks.append(count)
        low, high = first_bad(len(marks), lambda i: prefixes.after(marks[i]), self._tell)
        return self._passes(whole, marks[low], marks[high])

    def _tell(self, left: int) -> None:
        self.prefixes.progress.note(
            msgn("{count} position left to search", "{count} positions left to search", count=left)
        )

    def _importer(self, whole: Accuracy) -> Bisection:
        """Search without any pass: the first operator that its framework computes differently."""
        candidates = divergence.after_import(self.prefixes)
        for at in candidates[:MOST_TRIES]:
            if at.source is not None and self._shows_import(
                at.source, msg("import of {what}", what=at.text)
            ):
                return self._found("importer", whole, at, reproduced=True, alone=True)
        what = msg("import of {what}", what=self.prefixes.ready.model.name)
        shown = self._shows(what, lambda *rest: self.prefixes.call(_WRITE_MODEL, *rest))
        return self._found("importer", whole, *candidates[:1], reproduced=shown)

    def _passes(self, whole: Accuracy, low: int, high: int) -> Bisection:
        """Search after the passes from `low` to `high`: the first operator that they change."""
        guilty = self.prefixes.between(low, high)
        kernels = self.prefixes.call(_CHANGED_KERNELS, low, high)
        if kernels:
            return self._schedule(whole, low, high, kernels)
        candidates, known, values = divergence.between(self.prefixes, low, high)
        what = msg("pass {names}", names=guilty)
        for at in candidates[:MOST_TRIES]:
            cut = Cut(low, high, at.index, known, values)
            if self._shows_pair(cut, msg("{what} on {operator}", what=what, operator=at.text)):
                return self._found("pass", whole, at, passes=guilty, reproduced=True, alone=True)
        shown = self._shows_pair(Cut(low, high), msg("{what} on the whole model", what=what))
        return self._found("pass", whole, *candidates[:1], passes=guilty, reproduced=shown)

    def _schedule(self, whole: Accuracy, low: int, high: int, kernels: Sequence[str]) -> Bisection:
        """Search among kernels, if only they differ: the first one whose new form is wrong."""
        prefixes, total = self.prefixes, len(kernels)
        _, bad = first_bad(
            total + 1,
            lambda n: prefixes.mixed(low, high, kernels[:n], _scheduled(n, total)),
            self._tell,
        )
        kernel = kernels[bad - 1]
        rule, labels, index = prefixes.call(_KERNEL_FACTS, high, kernel)
        values = str(prefixes.scratch / "values.npz")
        known = [v.index for v in prefixes.call(VALUES, low, values)]
        cut = Cut(low, high, index, known, values, kernel)
        what = (
            msg("kernel {kernel}, scheduled by the rule {rule}", kernel=kernel, rule=rule)
            if rule
            else msg("kernel {kernel}", kernel=kernel)
        )
        shown = self._shows_pair(cut, what)
        at = Divergence(prefixes.operators(labels), index=index)
        guilty = prefixes.between(low, high)
        return self._found(
            "schedule", whole, at, passes=guilty, kernel=kernel, rule=rule, reproduced=shown,
            alone=True,
        )  # fmt: skip

    def _shows_import(self, source: int, what: str) -> bool:
        return self._shows(what, lambda *rest: self.prefixes.call(_WRITE_OPERATOR, source, *rest))

    def _shows_pair(self, cut: Cut, what: str) -> bool:
        return self._shows(what, lambda *rest: self.prefixes.call(_WRITE_PAIR, *cut, *rest))

    def _shows(self, what: str, write: Callable[[str, float, str], None]) -> bool:
        """Write a reproducer and run it; return whether it shows the difference."""
        prefixes = self.prefixes
        prefixes.progress.stage(msg("reproduce"), what)
        try:
            write(str(self.folder), prefixes.tolerance, what)
        except TvmscopeError as e:
            prefixes.progress.note(msg("{what}: {reason}", what=what, reason=one_line(e)))
            return False
        try:
            done = subprocess.run(
                [sys.executable, str(self.folder / SCRIPT)],
                capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            prefixes.progress.note(msg("{what}: the reproducer did not finish", what=what))
            return False
        (self.folder / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        return done.returncode == 1 and "DIFFERENT" in done.stdout

    def _found(
        self,
        outcome: Outcome,
        accuracy: Accuracy,
        at: Divergence | None = None,
        *,
        reproduced: bool | None = None,
        **more: Any,
    ) -> Bisection:
        prefixes = self.prefixes
        return Bisection(
            model=prefixes.ready.model.name,
            target=prefixes.target.label,
            outcome=outcome,
            accuracy=accuracy,
            source_ops=at.source_ops if at else (),
            detail=at.detail if at else None,
            reproducer=None if reproduced is None else self.folder,
            reproduced=reproduced,
            tested=tuple(prefixes.tested),
            **more,
        )
