"""Makes one set of inputs: seeded, resampled from an example, or read from an .npz file."""

from __future__ import annotations

import difflib
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tvmscope.core.model import TensorSpec
from tvmscope.core.options import LoadOptions
from tvmscope.errors import UsageError
from tvmscope.messages import did_you_mean, msg
from tvmscope.quantities import format_shape

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def generator(seed: int, name: str) -> np.random.Generator:
    """Return the input's own random stream, so that another input changes none of the others."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def seeded(spec: TensorSpec, seed: int, limit: int | None = None) -> Array:
    """Make valid values for a tensor of which only name, shape and type are known.

    Floats are N(0, 1). Integers are below `limit` (the table they index), else 0 or 1, which is
    valid for any axis longer than one. Masks are ones, segment ids zeros, positions count up.
    """
    rng, dtype, name = generator(seed, spec.name), np.dtype(spec.dtype), spec.name.lower()
    if dtype.kind == "c" or dtype.kind == "f":
        return np.asarray(rng.standard_normal(spec.shape)).astype(dtype)
    if "mask" in name:
        return np.ones(spec.shape, dtype)
    if "token_type" in name or "segment" in name:
        return np.zeros(spec.shape, dtype)
    if "position" in name and spec.shape:
        return np.broadcast_to(np.arange(spec.shape[-1], dtype=dtype), spec.shape).copy()
    high = limit or (256 if dtype == np.uint8 else 2)
    return np.asarray(rng.integers(0, high, spec.shape)).astype(dtype)


def resample(example: Array, shape: Shape, seed: int, name: str) -> Array:
    """Draw an array of another shape from the example's own values, so that they stay valid."""
    if shape == example.shape:
        return example
    return np.asarray(generator(seed, name).choice(example.ravel(), shape), dtype=example.dtype)


def wanted_shapes(defaults: Mapping[str, Shape], options: LoadOptions) -> dict[str, Shape]:
    """Return the shapes: `--shapes` first, then `--batch-size` for inputs that share dim 0."""
    check_names("--shapes", options.shapes, defaults)
    check_batch(options, defaults)
    batch = next((shape[0] for shape in defaults.values() if shape), None)
    wanted: dict[str, Shape] = {}
    for name, shape in defaults.items():
        if name in options.shapes:
            wanted[name] = options.shapes[name]
        elif options.batch_size is not None and shape and shape[0] == batch:
            wanted[name] = (options.batch_size, *shape[1:])
        else:
            wanted[name] = shape
    return wanted


def check_batch(options: LoadOptions, inputs: Iterable[str]) -> None:
    """Refuse an empty batch, or one that no input could have."""
    if options.batch_size is None:
        return
    if options.batch_size < 1:
        raise UsageError(
            msg(
                "--batch-size {batch_size}: a batch holds at least one item",
                batch_size=options.batch_size,
            )
        )
    shapes = [options.shapes.get(name) for name in inputs]
    if shapes and all(shape and shape[:1] != (options.batch_size,) for shape in shapes):
        raise UsageError(
            msg(
                "--batch-size {batch_size} contradicts --shapes, which fix every input; give "
                "one of them",
                batch_size=options.batch_size,
            )
        )


def check_names(what: str, given: Iterable[str], valid: Iterable[str]) -> None:
    """Refuse names that no input has, and list the valid ones."""
    names = list(valid)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            raise UsageError(
                msg(
                    "{what}: the model has no input '{name}'{hint} (inputs: {names})",
                    what=what,
                    name=name,
                    hint=did_you_mean(close),
                    names=names,
                )
            )


def read_npz(path: str) -> dict[str, Array]:
    """Return the arrays of an .npz file; pickled objects in it are refused, not run."""
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise UsageError(
                msg("'{path}' is one array; save it by name: np.savez(path, name=array)", path=path)
            )
        with archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError as e:
        raise UsageError(msg("there is no inputs file '{path}'", path=path)) from e
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as e:
        raise UsageError(
            msg(
                "'{path}' is not a readable .npz file; write it with np.savez(path, name=array)",
                path=path,
            )
        ) from e


def from_file(path: str, specs: Iterable[TensorSpec]) -> dict[str, Array]:
    """Return the inputs in an .npz file, checked against the model's inputs."""
    arrays, wanted = read_npz(path), {spec.name: spec for spec in specs}
    check_names(f"'{path}'", arrays, wanted)
    for name, spec in wanted.items():
        if name not in arrays:
            raise UsageError(
                msg(
                    "'{path}' lacks the input '{name}' (it has: {names})",
                    path=path,
                    name=name,
                    names=list(arrays),
                )
            )
        array = arrays[name]
        if array.shape != spec.shape:
            raise UsageError(
                msg(
                    "'{path}': '{name}' is {shape}, the model takes {wanted}; for "
                    "other shapes give --shapes {name}:{shape}",
                    path=path,
                    name=name,
                    shape=format_shape(array.shape),
                    wanted=format_shape(spec.shape),
                )
            )
        if array.dtype != np.dtype(spec.dtype):
            raise UsageError(
                msg(
                    "'{path}': '{name}' is {dtype}, the model takes {wanted}; save it as "
                    "array.astype('{wanted}')",
                    path=path,
                    name=name,
                    dtype=str(array.dtype),
                    wanted=spec.dtype,
                )
            )
    return {name: arrays[name] for name in wanted}


def choose(examples: Mapping[str, Array], options: LoadOptions) -> dict[str, Array]:
    """Return the inputs of a model that has examples, in the requested shapes."""
    shapes = wanted_shapes({name: array.shape for name, array in examples.items()}, options)
    if options.inputs_file is not None:
        specs = [TensorSpec(n, shapes[n], str(a.dtype)) for n, a in examples.items()]
        return from_file(options.inputs_file, specs)
    return {n: resample(a, shapes[n], options.seed, n) for n, a in examples.items()}
