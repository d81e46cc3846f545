import logging
import socket
import threading
from collections.abc import Sequence
from typing import Any

logger: logging.Logger

class PopenRPCServerState:
    current: PopenRPCServerState | None
    port: int
    thread: threading.Thread
    def __init__(
        self,
        host: str,
        port: int = 9091,
        port_end: int = 9199,
        is_proxy: bool = False,
        tracker_addr: tuple[str, int] | None = None,
        key: str = "",
        load_library: Sequence[str] | None = None,
        custom_addr: str | None = None,
        silent: bool = False,
        reuse_addr: bool = True,
        timeout: float | None = None,
    ) -> None: ...

def _serving(
    sock: socket.socket, addr: Any, opts: dict[str, Any], load_library: Sequence[str] | None
) -> None: ...
