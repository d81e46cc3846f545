"""Kernels that take clearly longer than the fastest other backend's for the same operators.

The cause is the first that applies: parallel tasks that do not divide evenly among the threads,
calls so short that their start matters, data that comes from memory, and otherwise the tile: its
loads per multiply-add, or the rows and channels that it computes and discards.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.profile import Loop
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import Seconds, Text, msg

SLOWER = 1.25
"""Times of single kernels repeat within some percent; a smaller factor may be chance."""
MUCH = 0.02
"""The least share of the run that the difference must be."""
SHORT_S = 20e-6
UNEVEN = 1.25
"""The last round of tasks leaves so many threads idle that the kernel takes this much longer."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        lost = [(k, loss) for k in subject.heavy if (loss := _loss_s(subject, k)) is not None]
        found = [(k, loss) for k, loss in lost if loss >= MUCH * subject.run_s]
        if found:
            yield _finding(subject, sorted(found, key=lambda pair: -pair[1]))


def _loss_s(subject: Subject, kernel: Kernel) -> float | None:
    """Return our extra time for the same operators; None if the other backend is no faster."""
    ratios = [subject.peers[op] for op in kernel.time.source_ops if op in subject.peers]
    if not ratios or max(ratios) * SLOWER > 1:
        return None
    return kernel.total_s * (1 - max(ratios))


def _finding(subject: Subject, found: list[tuple[Kernel, float]]) -> Finding:
    worst, loss_s = found[0]
    kernels = [kernel for kernel, _ in found]
    saving = sum(loss for _, loss in found)
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="hours",
        title=msg("Another backend computes the same operators faster"),
        evidence=subject.says(
            msg(
                "{names} take {spent}; the fastest other backend needs {saving} less for the same "
                "operators. {worst}: {ratio:.2f} times as long; {cause}",
                names=listed(names(kernels)),
                spent=subject.spent(kernels),
                saving=Seconds(saving),
                worst=listed(names([worst])),
                ratio=worst.total_s / (worst.total_s - loss_s),
                cause=_cause(subject, worst),
            )
        ),
        advice=msg(
            "Tune these kernels, or report the shapes: the schedule rule does not fit them."
        ),
        kernels=names(kernels),
        source_ops=sources(kernels),
        saving_s=saving,
    )


def _cause(subject: Subject, kernel: Kernel) -> Text:
    tasks = _tasks(kernel.ir.tree if kernel.ir else ())
    threads = subject.cores
    if subject.device == "cpu" and threads > 1 and ceil(tasks / threads) * threads > UNEVEN * tasks:
        return msg(
            "threads: its {tasks} parallel tasks do not share out among {threads} threads.",
            tasks=tasks,
            threads=threads,
        )
    if kernel.per_call_s < SHORT_S:
        return msg(
            "latency: a call takes {time}, of which starting it is a good part.",
            time=Seconds(kernel.per_call_s),
        )
    compute, memory = subject.limits.compute_s(kernel.time), subject.limits.memory_s(kernel.time)
    if memory is not None and (compute is None or memory > compute):
        return msg("bandwidth: its data takes {time} from where it lies.", time=Seconds(memory))
    if compute is None:
        return msg("its cause is not known without the machine's roofs.")
    return msg(
        "loads or padding: it is at {share:.0%} of the multiply-add roof, and its tile loads too "
        "much for each multiply-add, or computes what is cut off.",
        share=compute / kernel.total_s,
    )


def _tasks(loops: tuple[Loop, ...]) -> int:
    """Return the extent of the outermost parallel loop; 1 if there is none."""
    for loop in loops:
        if loop.mode == "parallel" and loop.extent:
            return loop.extent
        if (inner := _tasks(loop.body)) > 1:
            return inner
    return 1


RULE = Rule(
    id="slower-than-peer",
    title=msg("Slower than another backend's kernel"),
    needs=("profiles",),
    check=check,
)
