"""Serves the built site, or the lessons alone, to a browser on this machine.

It listens on the loopback address only, answers GET, and refuses requests for another host name, so
that a foreign page cannot read it through its own name.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from functools import partial
from http.server import (
    BaseHTTPRequestHandler,
    SimpleHTTPRequestHandler,
    ThreadingHTTPServer,
)
from pathlib import Path
from threading import Lock

from tvmscope.learn.lesson import Lesson
from tvmscope.messages import _, language, render

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")

Make = Callable[[str], str]
"""Returns a lesson's page by its name; it measures, and may take a minute."""


class _Local(BaseHTTPRequestHandler):
    """Answers only requests for this machine's names."""

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.headers.get("Host", "").rsplit(":", 1)[0] not in _NAMES:
            self.send_error(403)
            return False
        return True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Print nothing: the terminal belongs to the reader."""


class _Site(_Local, SimpleHTTPRequestHandler):
    """Serves the files of a folder."""


class _Lessons(_Local):
    """Serves an index, and each lesson, measured at its first request."""

    def __init__(
        self,
        lessons: Mapping[str, Lesson],
        make: Make,
        kept: dict[str, str],
        lock: Lock,
        *args: object,
    ) -> None:
        self._lessons, self._make, self._kept, self._lock = lessons, make, kept, lock
        super().__init__(*args)  # type: ignore[arg-type]  # the server gives what the base takes

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if name and name not in self._lessons:
            self.send_error(404)
            return
        body = (self._page(name) if name else index(self._lessons)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _page(self, name: str) -> str:
        with self._lock:  # two at once would disturb each other's times
            if name not in self._kept:
                self._kept[name] = self._make(name)
            return self._kept[name]


def index(lessons: Mapping[str, Lesson]) -> str:
    """Return a page with a link to every lesson."""
    items = "".join(
        f'<li><a href="/{html.escape(name)}">{html.escape(render(lesson.title))}</a></li>'
        for name, lesson in lessons.items()
    )
    note = html.escape(_("A lesson is measured on this machine when it is opened: some seconds."))
    return (
        f'<!doctype html><html lang="{language()}"><meta charset="utf-8">'
        "<title>tvmscope learn</title>"
        f"<h1>tvmscope learn</h1><p>{note}</p><ul>{items}</ul></html>"
    )


def site_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return the server of a built site."""
    return ThreadingHTTPServer((HOST, port), partial(_Site, directory=str(folder)))


def lesson_server(lessons: Mapping[str, Lesson], make: Make, port: int) -> ThreadingHTTPServer:
    """Return the server of the lessons alone, without a built site."""
    return ThreadingHTTPServer((HOST, port), partial(_Lessons, lessons, make, {}, Lock()))
