"""The picture of a session."""

from __future__ import annotations

from xml.etree import ElementTree

from support import samples
from tvmscope.report.formats.svg import to_svg


def test_svg_is_well_formed_and_shows_every_backend() -> None:
    session = samples.complete()
    document = to_svg([session])
    texts = "".join(ElementTree.fromstring(document).itertext()).replace("\xa0", " ")
    for result in session.results:
        assert result.task.variant.backend in texts


def test_hostile_names_cannot_leave_the_text() -> None:
    document = to_svg([samples.hostile_names()])
    assert "<script" not in document
    ElementTree.fromstring(document)


def test_nothing_is_fetched_to_show_it() -> None:
    document = to_svg([samples.ALL["tuned"]()])
    assert "url(" not in document.replace("url(#", "")
