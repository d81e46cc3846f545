"""References to functions of the package that tests run in processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.measure.remote import remote

if TYPE_CHECKING:
    import tvmscope.compiler.tunable.extract
    import tvmscope.models.prepare

PREPARE = remote(lambda: tvmscope.models.prepare.prepare)
EXTRACT = remote(lambda: tvmscope.compiler.tunable.extract.extract)
