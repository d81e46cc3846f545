"""Reading a profile: which kernel matters, and how much it could save."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tvmscope.core.target import Target
from tvmscope.learn import exercises
from tvmscope.learn.facts import Exhibit
from tvmscope.learn.lesson import Lesson
from tvmscope.learn.lessons.road import tiny_network
from tvmscope.measure.remote import here
from tvmscope.messages import Text, msg

if TYPE_CHECKING:
    from tvmscope.core.session import Session


def exhibits(size: int, target: Target, live: bool) -> tuple[Exhibit, ...]:
    """Show a small network's profile as `tvmscope profile` prints it, and how to read it."""
    session = _profiled(size, target.cores)
    return (
        Exhibit(
            title=msg("The profile"),
            words=msg(
                "One line for each kernel, the longest first. 'share' is its part of a run, 'of "
                "roof' how near it is to what the machine could do with its arithmetic and bytes."
            ),
            code=_table(session),
        ),
        *_reading(session),
    )


def _profiled(size: int, threads: int) -> Session:
    from tvmscope.stages.options import Options
    from tvmscope.workflow.profile import profile

    with TemporaryDirectory(prefix="tvmscope-") as folder:
        file = Path(folder) / "tiny.onnx"
        file.write_bytes(tiny_network(size).SerializeToString())
        return profile(str(file), Options.of(targets=("cpu",), threads=threads, db="none"))


def _table(session: Session) -> str:
    from rich.console import Console

    from tvmscope.report.terminal import profile_table

    stream = StringIO()
    Console(file=stream, width=110, color_system=None).print(profile_table.render(session, 12))
    return stream.getvalue().rstrip()


def _reading(session: Session) -> tuple[Exhibit, ...]:
    """Show what follows from the numbers."""
    from tvmscope.analysis.roofline import points
    from tvmscope.report.terminal.profile_table import by_kernel

    found = []
    for profile in session.profiles:
        longest = by_kernel(profile.kernels)[0]
        share = longest.total_s / profile.profiled_s
        shares = {p.kernel: p.share for p in points(session) if p.key == profile.key}
        saving: Text = msg("Its roof is not known.")
        if longest.name in shares:
            of_roof = min(1.0, shares[longest.name])
            saving = msg(
                "It runs at {roof:.0%} of its roof, so that the best schedule could save at most "
                "{saved:.0%} of a run.",
                roof=of_roof,
                saved=share * (1 - of_roof),
            )
        found.append(
            Exhibit(
                title=msg("How to read it"),
                words=msg(
                    "Look first at {kernel}: {share:.0%} of a run. {saving} A kernel far from its "
                    "roof but with a small share is not worth the work; one at its roof can only "
                    "be helped by doing less: fusion, another layout, another algorithm. What lies "
                    "outside kernels ({host:.0%}) no schedule changes.",
                    kernel=longest.name,
                    share=share,
                    saving=saving,
                    host=(profile.host_s or 0.0) / profile.profiled_s,
                ),
            )
        )
    return tuple(found)


LESSON = Lesson(
    name="profile",
    title=msg("Reading a profile: where to look first"),
    idea=msg(
        "Before a schedule is written, the question is for which kernel. A profile answers with "
        "two numbers: how much of a run a kernel takes, and how far it is from its roof. Their "
        "product is the most that work on it can save.\n\n"
        "tvmscope profile MODEL prints this for any model, tvmscope explain says why a kernel is "
        "slow."
    ),
    size=96,
    smallest=16,
    exhibits=here(exhibits),
    exercise=exercises.number(
        msg(
            "A kernel takes 40 % of a run and runs at 25 % of its roof. By how many percent of the "
            "run's time could the best schedule shorten it, at most?"
        ),
        lambda study: round(40 * (1 - 0.25)),
        lambda study, right: msg(
            "Yes: at its roof it would take a quarter of its time, and three quarters are saved."
        ),
    ),
    closing=msg("Next: tvmscope learn matmul"),
)
