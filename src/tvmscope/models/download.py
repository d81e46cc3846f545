"""Keeps downloaded models in the user's cache, each with the digest of its content."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from tvmscope.errors import ImportModelError, one_line
from tvmscope.messages import msg
from tvmscope.storage.files import digest_file, write_text_atomic

TIMEOUT_S = 10.0
"""The timeout for a server that does not respond."""


def cache_folder() -> Path:
    """Return the folder of downloaded models."""
    import platformdirs

    return platformdirs.user_cache_path("tvmscope") / "models"


def reachable(url: str, timeout_s: float = 3.0) -> bool:
    """Whether `url` answers quickly (through the user's proxy, if there is one)."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=timeout_s):
            return True
    except urllib.error.HTTPError:
        return True  # it answers: the download will report its error
    except OSError:  # URLError and timeouts are OSErrors
        return False


def fetch(url: str, *, offline: bool = False) -> Path:
    """Return the cached file of an http(s) URL; a copy whose digest differs is fetched again."""
    name = Path(urlsplit(url).path).name
    path = cache_folder() / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}-{name}"
    stamp = path.with_name(path.name + ".sha256")
    if path.exists() and stamp.exists() and stamp.read_text().strip() == digest_file(path):
        return path
    if offline:
        raise ImportModelError(
            msg("{url} is not in the cache, and downloads are off; run it online once", url=url)
        )
    try:
        _download(url, path)
    except OSError as e:
        raise ImportModelError(
            msg(
                "cannot download {url}: {reason}; fetch it yourself and give the file",
                url=url,
                reason=one_line(e),
            )
        ) from e
    write_text_atomic(stamp, digest_file(path) + "\n")
    return path


def _download(url: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with (
            os.fdopen(handle, "wb") as stream,
            urllib.request.urlopen(url, timeout=TIMEOUT_S) as response,
        ):
            expected, received = response.headers.get("Content-Length"), 0
            while block := response.read(1 << 20):
                received += stream.write(block)
        if expected is not None and received != int(expected):  # a lost connection raises no error
            raise OSError(f"the connection ended after {received} of {expected} bytes")
        os.replace(temporary, path)
    except BaseException:  # even an interrupt must leave no partial file; it is raised again below
        Path(temporary).unlink(missing_ok=True)
        raise
