"""Measures one or several models; a model that fails becomes a row of the summary."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tvmscope.core.model import Model
from tvmscope.core.session import Session, load, save
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.messages import Text, msg
from tvmscope.progress import Progress, Silent
from tvmscope.stages import places
from tvmscope.stages.job import begin
from tvmscope.stages.load import name_of
from tvmscope.stages.options import Options
from tvmscope.workflow.analyze import analyze
from tvmscope.workflow.suiting.options import SuiteOptions
from tvmscope.workflow.suiting.problem import Examined
from tvmscope.workflow.suiting.problems import find
from tvmscope.workflow.suiting.run import run_suite

FOLDER_TIMEOUT_S = 3600.0
"""The time limit for a model among several, from loading to the last round."""


def expand(models: list[str]) -> list[str]:
    """Replace folders by the model files below them, in order of name."""
    found: list[str] = []
    for model in models:
        if Path(model).is_dir():
            found += [problem.source for problem in find([model])]
        else:
            found.append(model)
    return found


def bench_folder(
    given: list[str],
    options: Options,
    progress: Progress | None = None,
    *,
    done: list[Session] | None = None,
) -> list[Session]:
    """Return a session per model, measured like a suite: isolated, and resumable in its folder.

    `done` receives each session as it is finished: an interruption leaves it filled.
    """
    started = datetime.now(UTC)
    folder = options.output or places.session_folder("bench", "suite", started)
    sessions = [] if done is None else done
    how = SuiteOptions(timeout_s=FOLDER_TIMEOUT_S, keep=True, all_backends=True, enter=False)
    rows = run_suite(
        find(given),
        options,
        how,
        folder,
        progress,
        examiner=lambda *given: _examined(sessions, *given),
    )
    return [load(folder / str(row.session)) for row in rows]


def _examined(done: list[Session], source: str, options: Options, progress: Progress) -> Examined:
    """Do what `analyze` does with a model; a failure also becomes a session."""
    try:
        done.append(analyze(source, options, progress))
    except Exception as e:  # it is raised again for its row; the session is for the table
        done.append(_failed(source, options, one_line(e)))
        raise
    return Examined(session=done[-1])


def bench_models(
    models: list[Any],
    options: Options,
    progress: Progress | None = None,
    *,
    done: list[Session] | None = None,
) -> list[Session]:
    """Return a session per model. A single model's failure is raised; among several it is recorded.

    `done` receives each of several sessions as it is finished: an interruption leaves it filled.
    """
    progress = progress or Silent()
    if len(models) == 1:
        return [analyze(models[0], options, progress)]
    sessions = [] if done is None else done
    for index, model in enumerate(models):
        name = name_of(model)
        own = replace(options, output=_own_folder(options, name, index))
        progress.note(
            msg("model {number} of {count}: {name}", number=index + 1, count=len(models), name=name)
        )
        try:
            sessions.append(analyze(model, own, progress))
        except TvmscopeError as e:
            progress.note(msg("{name}: {reason}", name=name, reason=one_line(e)))
            sessions.append(_failed(name, own, one_line(e)))
    return sessions


def _own_folder(options: Options, name: str, index: int) -> Path | None:
    return options.output / f"{index + 1:02d}-{Path(name).stem}" if options.output else None


def _failed(name: str, options: Options, reason: Text) -> Session:
    """Return a session that says why its model could not be measured."""
    started = datetime.now(UTC)
    model = Model(
        name=Path(name).name,
        source=name,
        format="onnx" if name.endswith(".onnx") else "torch",
        inputs=(),
        outputs=(),
        digest="",
        weights="file",
    )
    session = replace(begin(model, options, started=started), failure=reason)
    folder = options.output or places.session_folder(Path(name).stem, "failed", started)
    save(session, folder)
    return session
