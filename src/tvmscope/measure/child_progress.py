"""Lets work in a child process report its progress to the process that waits for it.

The report is also a heartbeat, so that such work is no hang. Outside a child it is ignored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tvmscope.messages import Text

Step = tuple[float, float, Text]
"""As in `Progress.step`: done, total, detail."""
Listener = Callable[[Step], None]

_lock = threading.Lock()
_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Pass all later reports to `listener`, from one thread at a time."""
    global _listener
    _listener = listener


def tell(done: float, total: float, detail: Text) -> None:
    """Report that `done` of `total` is done."""
    with _lock:
        if _listener is not None:
            _listener((done, total, detail))
