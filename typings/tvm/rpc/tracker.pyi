import threading

class PopenTrackerServerState:
    port: int
    stop_key: str
    thread: threading.Thread
    def __init__(
        self,
        host: str,
        port: int = 9190,
        port_end: int = 9199,
        silent: bool = False,
        reuse_addr: bool = True,
        timeout: float | None = None,
    ) -> None: ...
