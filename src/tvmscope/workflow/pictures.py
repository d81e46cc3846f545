"""Runs an artifact on images, with one worker for all; a bad image costs only its own result."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tvmscope.backends import all_backends
from tvmscope.core.artifact import Artifact
from tvmscope.core.options import PictureOptions
from tvmscope.core.session import Session
from tvmscope.core.vision import PRESETS, Answer, Vision
from tvmscope.errors import PictureError, UsageError
from tvmscope.images import answer, heads, image_files, labels
from tvmscope.images.answer import Request
from tvmscope.images.draw import writable
from tvmscope.images.preprocess import recognise
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker, WorkerDied
from tvmscope.messages import Text, msg
from tvmscope.models.darknet import cfg
from tvmscope.models.inputs import Array, read_npz
from tvmscope.progress import Progress, Silent
from tvmscope.stages.artifact import read_checked
from tvmscope.stages.device import on_device
from tvmscope.stages.options import Options
from tvmscope.stages.targets import threads_of
from tvmscope.storage.files import write_npz
from tvmscope.workflow.profile import profile_artifact
from tvmscope.workflow.run import run_artifact

_ANSWER = here(answer.answer)
_MOST_DEATHS = 3
"""The number of workers lost in a row before the remaining images are given up."""

_UNKNOWN = msg(
    "how this model was trained to see pictures is not known: it gets values of 0 to 255; "
    "--preprocess, --input-scale, --mean, --std and --fit say otherwise"
)


@dataclass(frozen=True)
class Shown:
    """Results in the order of the images, and the measured session if one was requested."""

    answers: tuple[Answer, ...]
    session: Session | None = None


@on_device
def show_pictures(
    path: Path,
    options: Options,
    *,
    save_outputs: Path | None = None,
    profile: bool = False,
    progress: Progress | None = None,
) -> Shown:
    """Return a result per image; the first readable image is also timed and profiled on request."""
    progress, asked = progress or Silent(), options.pictures
    if asked is None:
        raise UsageError(msg("no image was given"))
    if options.load.inputs_file is not None:
        raise UsageError(msg("give --image or --inputs, not both"))
    artifact = read_checked(path, options)
    vision = vision_for(artifact, asked)
    answer.picture_input(artifact)
    answer.task_of(artifact, vision)
    files = image_files.find(asked.pictures, offline=asked.offline)
    written = [*_drawings(asked.save_vis, files), save_outputs]
    _refuse_overwrite([Path(file) for file in written if file is not None], options.force)
    if artifact.vision is None and not asked.preprocess:
        progress.note(_assumed(artifact))
    with TemporaryDirectory(prefix="tvmscope-") as scratch:
        requests = _requests(path, files, vision, asked, options, Path(scratch))
        answers = _answer_all(requests, options, progress)
        if save_outputs is not None:
            _gather(requests, answers, save_outputs)
        session = None
        if inputs := _first_inputs(requests, answers):
            fed = replace(options, load=replace(options.load, inputs_file=inputs))
            if asks_for_times(options):
                session = run_artifact(path, fed, progress=progress)
            if profile:
                session = profile_artifact(path, fed, progress, session)
    return Shown(tuple(answers), session)


@dataclass(frozen=True)
class Asked:
    """Results in the order of the images, and the file with the inputs of the first readable
    one."""

    answers: tuple[Answer, ...]
    inputs: str | None


def ask(
    artifact: Artifact, vision: Vision, options: Options, scratch: Path, progress: Progress
) -> Asked:
    """Return results only: nothing is measured, drawn or stored outside `scratch`."""
    asked = options.pictures
    if asked is None:
        raise UsageError(msg("no image was given"))
    answer.picture_input(artifact)
    answer.task_of(artifact, vision)
    files = image_files.find(asked.pictures, offline=asked.offline)
    requests = _requests(artifact.path, files, vision, asked, options, scratch)
    answers = _answer_all(requests, options, progress)
    return Asked(tuple(answers), _first_inputs(requests, answers))


def _first_inputs(requests: Sequence[Request], answers: Sequence[Answer]) -> str | None:
    """Return the file with the model's inputs of the first image that has a result."""
    pairs = zip(requests, answers, strict=True)
    return next((r.save_inputs for r, a in pairs if a.failure is None), None)


def asks_for_times(options: Options) -> bool:
    """Whether counts or a duration were given; images alone need no statistics."""
    default = Options().measure
    return options.measure.iterations is not None or options.measure != replace(
        default, warmup=options.measure.warmup, seed=options.measure.seed
    )


def vision_for(artifact: Artifact, asked: PictureOptions) -> Vision:
    """Return the artifact's image settings, overridden by the user's."""
    known = artifact.vision or Vision(preprocess=PRESETS[_preset(artifact) or "raw"])
    vision = replace(known, preprocess=replace(known.preprocess, **asked.preprocess))
    if asked.labels is not None:
        vision = replace(vision, labels=labels.read(asked.labels))
    if asked.task is not None:
        vision = replace(vision, task=asked.task)
    return vision if asked.head is None else _with_head(vision, asked.head)


def _preset(artifact: Artifact) -> str | None:
    return recognise(artifact.inputs, artifact.outputs)


def _assumed(artifact: Artifact) -> Text:
    """Say how pixels are preprocessed if the artifact does not say it."""
    preset = _preset(artifact)
    if preset is None:
        return _UNKNOWN
    return msg(
        "by its shapes this is an ImageNet classifier: pixels are prepared by --preprocess "
        "{preset}; other presets are {others}",
        preset=preset,
        others=[name for name in PRESETS if name != preset],
    )


def _with_head(vision: Vision, text: str) -> Vision:
    """Parse `--head yolov8`, or `--head darknet:model.cfg` with the file that has the anchors."""
    name, _, file = text.partition(":")
    if name not in heads.NAMES or (file and name != "darknet"):
        raise UsageError(
            msg("--head {text} is none of {names}, darknet:FILE.cfg", text=text, names=heads.NAMES)
        )
    anchors = vision.anchors
    if file:
        _, layers = cfg.parse(cfg.read_text(Path(file)))
        anchors = cfg.anchors(layers)
    return replace(vision, task="detect", head=name, anchors=anchors)


def _requests(
    path: Path,
    files: Sequence[Path],
    vision: Vision,
    asked: PictureOptions,
    options: Options,
    scratch: Path,
) -> list[Request]:
    warmup = options.measure.warmup
    drawings = _drawings(asked.save_vis, files)
    return [
        Request(
            artifact=str(path.resolve()),
            picture=str(file),
            vision=vision,
            threads=threads_of(options),
            warmup=1 if warmup is None else warmup,
            score_threshold=asked.score_threshold,
            nms_iou=asked.nms_iou,
            save_vis=drawings[number],
            save_outputs=str(scratch / f"outputs{number}.npz"),
            save_inputs=str(scratch / f"inputs{number}.npz"),
        )
        for number, file in enumerate(files)
    ]


def _drawings(place: Path | None, files: Sequence[Path]) -> list[str | None]:
    """Return the files to draw: one image to a file, or like several into a folder (no suffix)."""
    if place is None:
        return [None] * len(files)
    if len(files) == 1 and place.suffix and not place.is_dir():
        if place.suffix.lower() not in writable():
            raise UsageError(
                msg(
                    "--save-vis {place}: {suffix} is not an image format that can be written",
                    place=place,
                    suffix=place.suffix,
                )
            )
        return [str(place)]
    if place.suffix and not place.is_dir():
        raise UsageError(
            msg("--save-vis {place}: {count} images need a folder", place=place, count=len(files))
        )
    names = [f"{file.stem}.jpg" for file in files]
    for number, name in enumerate(names):  # a.png and a.jpg, or a.jpg of two folders
        if name in names[:number]:
            names[number] = f"{Path(name).stem}-{number + 1}.jpg"
    return [str(place / name) for name in names]


def _refuse_overwrite(files: Sequence[Path], force: bool) -> None:
    for file in files:
        if file.exists() and not force:
            raise UsageError(msg("{file} exists; will not overwrite without --force", file=file))


def _answer_all(requests: Sequence[Request], options: Options, progress: Progress) -> list[Answer]:
    """Process one image after the other; after an image that crashes the worker, start a new
    one."""
    backend = all_backends()[0]["tvmscope"]
    answers: list[Answer] = []
    progress.stage(msg("run"), requests[0].artifact)
    with ExitStack() as stack:
        worker: Worker | None = None
        deaths = 0
        for number, request in enumerate(requests):
            if worker is None:
                env = backend.env(request.threads)
                worker = Worker("tvmscope", env=env, timeout_s=options.measure.timeout_s)
                stack.enter_context(worker)
            try:
                answers.append(worker.call(_ANSWER, request))
                deaths = 0
            except PictureError as e:
                answers.append(Answer(picture=request.picture, failure=e.message))
            except WorkerDied as e:
                worker, deaths = None, deaths + 1
                if deaths == _MOST_DEATHS:  # then the artifact is the cause, not the images
                    raise
                answers.append(Answer(picture=request.picture, failure=e.message))
            progress.step(number + 1, len(requests), Path(request.picture).name)
    return answers


def _gather(requests: Sequence[Request], answers: Sequence[Answer], place: Path) -> None:
    """Write the outputs: those of one image keep their names; those of several are prefixed with
    the image's name."""
    kept: dict[str, Array] = {}
    for request, said in zip(requests, answers, strict=True):
        if said.failure is None and request.save_outputs is not None:
            prefix = f"{Path(request.picture).name}/" if len(requests) > 1 else ""
            arrays = read_npz(request.save_outputs)
            kept |= {f"{prefix}{name}": array for name, array in arrays.items()}
    if kept:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_npz(place, kept)
