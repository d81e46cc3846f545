"""Runs ONNX's node tests by ONNX's own runner in worker processes: a crash or hang is a result.

    PYTHONPATH=tests python -m support.node_tests --write

Workers are forked from a process that holds the tests and has loaded no runtime; each runs many.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import sys
import time
import unittest
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

MODES = ("onnxruntime", "plain", "fallback")
"""ONNX Runtime; ours without fallback; ours with fallback."""
PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
LIMIT_S = 120.0
"""A test that takes longer hangs."""
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Outcome:
    """How one test went in one mode; `reason` is empty where it passed."""

    test: str
    mode: str
    passed: bool
    reason: str
    seconds: float


def names() -> list[str]:
    """All node tests, in order; loads them, so that workers forked afterwards have them."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tests of infinities divide by zero
        return sorted(case.name for case in load_model_tests(kind="node"))


# ---- in a worker --------------------------------------------------------------------------------


def _serve(channel: Connection) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    suites: dict[str, Any] = {}
    warnings.simplefilter("ignore")
    while (task := channel.recv()) is not None:
        test, mode = task
        if mode not in suites:
            suites[mode] = _suite(mode)
        start = time.perf_counter()
        reason = _run(suites[mode], test)
        channel.send(Outcome(test, mode, not reason, reason, time.perf_counter() - start))


def _suite(mode: str) -> Any:
    from onnx.backend.test import BackendTest

    return BackendTest(_backend(mode), __name__).test_cases["OnnxBackendNodeModelTest"]


def _backend(mode: str) -> Any:
    if mode == "onnxruntime":
        import onnxruntime.backend

        return onnxruntime.backend
    from tvmscope import onnx_backend

    if mode == "fallback":
        return onnx_backend

    class Plain(onnx_backend.TvmscopeBackend):
        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Any:
            return super().prepare(model, device, fallback=False, **kwargs)

    return Plain


def _run(suite: Any, test: str) -> str:
    result = unittest.TestResult()
    suite(f"{test}_cpu").run(result)
    failed = [text for _, text in (*result.errors, *result.failures)]
    failed += [f"skipped: {reason}" for _, reason in result.skipped]
    return _gist(failed[0]) if failed else ""


def _gist(text: str) -> str:
    """The error itself, in one line: the lines of a traceback are left out."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    start = max((n for n, line in enumerate(lines) if line.startswith("  ")), default=-1)
    errors = [n for n, line in enumerate(lines) if ": " in line and not line.startswith(" ")]
    chosen = next((n for n in errors if n > 0), start + 1 if start + 1 < len(lines) else 0)
    last = max((n for n in errors if _is_error(lines[n])), default=chosen)
    return " ".join(" ".join(lines[last:]).split())[:300]


def _is_error(line: str) -> bool:
    head = line.partition(":")[0]
    return head.replace(".", "").replace("_", "").isalnum() and not head.islower()


# ---- the page -----------------------------------------------------------------------------------

_HEAD = """# ONNX coverage

`make test-onnx` runs all node tests of the pinned onnx package by ONNX's own runner and writes this
page. A test counts where ONNX Runtime passes it in the same run. Strings and sequences cannot be
inputs or outputs of a compiled model. Inputs that decide on shapes (axes, pads, sizes) are compiled
for the values that they have. The weights of a model over 2 GiB stay in the files beside it (ONNX's
external data), inside its folder.

"""


def page(outcomes: list[Outcome]) -> str:
    """The result as a page: counts, then every test that fails, with the reason."""
    by_mode = {mode: {o.test: o for o in outcomes if o.mode == mode} for mode in MODES}
    counted = [test for test, o in sorted(by_mode["onnxruntime"].items()) if o.passed]
    plain = {test for test in counted if by_mode["plain"][test].passed}
    fallback = plain | {t for t in counted if t not in plain and by_mode["fallback"][t].passed}
    lines = [
        f"With onnx {version('onnx')} and ONNX Runtime {version('onnxruntime')}:",
        "",
        "| node tests | number | share |",
        "|---|---:|---:|",
        f"| all | {len(by_mode['onnxruntime'])} | |",
        f"| ONNX Runtime passes | {len(counted)} | 100 % |",
        f"| compiled without fallback | {len(plain)} | {len(plain) / len(counted):.1%} |",
        f"| with fallback | {len(fallback)} | {len(fallback) / len(counted):.1%} |",
        "",
        "## Tests that fail without fallback",
        "",
        "| test | with fallback | reason |",
        "|---|---|---|",
    ]
    for test in counted:
        if test not in plain:
            told = by_mode["plain" if test in fallback else "fallback"][test]
            word = "passes" if test in fallback else "fails"
            lines.append(f"| `{test}` | {word} | {_cell(told.reason)} |")
    others = [o for t, o in sorted(by_mode["plain"].items()) if t not in counted and not o.passed]
    lines += [
        "",
        "## Tests that ONNX Runtime fails too",
        "",
        f"{len(by_mode['plain']) - len(counted) - len(others)} of them pass here, these do not:",
        "",
        "| test |",
        "|---|",
        *(f"| `{o.test}` |" for o in others),
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _cell(reason: str) -> str:
    short = re.sub(r"^tvmscope\.errors\.\w+: (test_\w+: )?", "", reason)
    for end in ("; `onnxslim`", "; rewrite them", " First 5", " ACTUAL", " Mismatch at"):
        short = short.partition(end)[0]
    return short.replace("|", "/").replace("`", "'")[:160]


# ---- in the parent ------------------------------------------------------------------------------


class _Worker:
    def __init__(self) -> None:
        self.channel, far = _FORK.Pipe()
        self.process = _FORK.Process(target=_serve, args=(far,), daemon=True)
        self.process.start()
        far.close()
        self.task: tuple[str, str] | None = None
        self.since = 0.0

    def give(self, task: tuple[str, str]) -> None:
        self.task, self.since = task, time.monotonic()
        self.channel.send(task)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.channel.close()


def run_all(tasks: Iterable[tuple[str, str]], workers: int = 2) -> Iterator[Outcome]:
    """Outcomes as they come; a worker that dies or hangs is replaced."""
    waiting = list(tasks)[::-1]
    pool: list[_Worker] = []
    try:
        pool += [_Worker() for _ in range(min(workers, len(waiting)))]
        while waiting or any(w.task for w in pool):
            for worker in pool:
                if worker.task is None and waiting:
                    worker.give(waiting.pop())
            ready = set(wait([w.channel for w in pool if w.task], timeout=1.0))
            for index, worker in enumerate(pool):
                outcome = _outcome(worker, worker.channel in ready)
                if outcome is None:
                    continue
                worker.task = None
                yield outcome
                if not worker.process.is_alive() or outcome.reason.startswith(("crash", "hang")):
                    worker.end()
                    pool[index] = _Worker()
    finally:
        for worker in pool:
            worker.end()


def _outcome(worker: _Worker, ready: bool) -> Outcome | None:
    if worker.task is None:
        return None
    test, mode = worker.task
    seconds = time.monotonic() - worker.since
    if ready:
        with contextlib.suppress(EOFError, OSError):
            received: Outcome = worker.channel.recv()
            return received
        worker.process.join(5)
        return Outcome(test, mode, False, f"crash: exit code {worker.process.exitcode}", seconds)
    if seconds > LIMIT_S:
        return Outcome(test, mode, False, f"hang: no result after {LIMIT_S:.0f} s", seconds)
    return None


def sample(found: list[str], page: Path, count: int) -> list[str]:
    """Evenly chosen tests among those that the page does not list as failing."""
    known = {line.split("`")[1] for line in page.read_text().splitlines() if line.startswith("| `")}
    good = [name for name in found if name not in known]
    return [good[int(n * len(good) / count)] for n in range(count)]


def main() -> None:
    """Run the tests, print how many pass, write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names of the tests to run")
    parser.add_argument("--sample", type=int, help="so many of those that should pass")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="outcomes as JSON lines")
    parser.add_argument("--write", action="store_true", help="write docs/coverage.md")
    options = parser.parse_args()
    found = names()
    chosen = [name for name in found if options.only in name]
    if options.sample:
        chosen = sample(chosen, PAGE, options.sample)
    outcomes: list[Outcome] = []
    for mode in options.modes.split(","):
        # what passes without fallback has none: with it, the same is compiled
        done = {o.test for o in outcomes if o.mode == "plain" and o.passed}
        tasks = [(n, mode) for n in chosen if mode != "fallback" or n not in done]
        outcomes += run_all(tasks, options.workers)
        passed = sum(o.passed for o in outcomes if o.mode == mode)
        print(f"{mode}: {passed} of {len(tasks)} pass", file=sys.stderr)
    if options.json:
        options.json.write_text("".join(json.dumps(asdict(o)) + "\n" for o in outcomes))
    if options.write:
        # what benchmarks/zoo.py wrote stays
        _, heading, models = PAGE.read_text().partition("\n# Published models\n")
        PAGE.write_text(page(outcomes) + heading + models)


if __name__ == "__main__":
    main()
