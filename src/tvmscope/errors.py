"""Every error that a user can meet; its message says what failed, on which input, what to try."""

from __future__ import annotations

import re


class TvmscopeError(Exception):
    """Base of all expected failures. `exit_code` is what the command line returns."""

    exit_code = 1

    @property
    def message(self) -> str:
        """The error's text; if it was made with `messages.msg`, still that message."""
        return self.args[0] if self.args and isinstance(self.args[0], str) else str(self)


class UsageError(TvmscopeError):
    """The request itself is wrong: an unknown name, a bad shape, a missing file."""

    exit_code = 2


class ImportModelError(TvmscopeError):
    """A model could not be read or translated."""


class PassError(TvmscopeError):
    """A compiler pass failed; the message names it and the passes before it."""


class TuneError(TvmscopeError):
    """Tuning could not continue."""


class BuildError(TvmscopeError):
    """Code generation or linking failed."""


class RunError(TvmscopeError):
    """An artifact or a backend failed while loading or running."""


class PictureError(TvmscopeError):
    """A file is not a readable image, or not one that the model can take."""


class AccuracyError(TvmscopeError):
    """An output differs from the reference by more than the tolerance."""

    exit_code = 3


class RegressionError(TvmscopeError):
    """A measurement is slower than its baseline allows."""

    exit_code = 4


class BackendUnavailable(TvmscopeError):
    """A requested library is missing; the message says how to install it."""

    exit_code = 5


class Incomparable(TvmscopeError):
    """Two measurements do not measure the same thing."""


class SchemaError(TvmscopeError):
    """A session, artifact or database file does not have the form that this version reads."""


_ADVICE = re.compile(r"(?:See|Please)\b")
"""The beginning of a line that follows the reason."""
_CPP_PLACE = re.compile(
    r"/\S+\.(?:cc|cpp|cu|h|hpp):\d+ [\w:~<>&* ]+\((?:[^()]|\([^()]*\))*\)(?: const)?\s*"
)
"""The file and the function that ONNX Runtime puts before what it has to say."""


def one_line(error: BaseException, limit: int = 300) -> str:
    """Return the essence of an error in one printable line (TVM's messages run over pages).

    A message of ours that is already one line is returned unchanged: it can be translated.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    while len(lines) > 1 and _ADVICE.match(lines[-1]):
        lines.pop()
    gist = next((x for x in reversed(lines) if "Error" in x), lines[-1] if lines else "")
    gist = _CPP_PLACE.sub("", gist) or gist
    text = "".join(c if c.isprintable() else " " for c in gist) or type(error).__name__
    if isinstance(error, TvmscopeError) and error.message == text:
        return error.message
    return text if len(text) <= limit else text[: limit - 1] + "…"
