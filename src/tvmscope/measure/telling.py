"""Lets work in a child process say how far it is; whoever waits for it is shown.

It goes with the heartbeat, so that work which tells is no hang. Outside a child nobody listens.
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
    """Hand what is told from now on to `listener`, from one thread at a time."""
    global _listener
    _listener = listener


def tell(done: float, total: float, detail: Text) -> None:
    """Say that `done` of `total` is done."""
    with _lock:
        if _listener is not None:
            _listener((done, total, detail))
