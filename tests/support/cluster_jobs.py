"""What stands for measuring in tests of the cluster: rows that say which worker made them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tvmscope.core.suite import SuiteRow
from tvmscope.storage.codec import encode
from tvmscope.workflow.suiting.cluster_worker import Parcel


def measure(parcel: Parcel, content: bytes | None) -> tuple[str, str | None]:
    """A row whose reason is the worker's process id; a problem of `wait FILE` waits for the file to
    be there, one of `die` ends its worker, and one of `raise TEXT` raises."""
    words = (content or b"").decode().split()
    if words[:1] == ["die"]:
        os._exit(1)
    if words[:1] == ["raise"]:
        raise RuntimeError(" ".join(words[1:]))
    if words[:1] == ["wait"]:
        Path(words[1] + ".begun").write_text(str(os.getpid()))
        while not Path(words[1]).exists():
            time.sleep(0.02)
    row = SuiteRow(
        problem=parcel.problem.name, key=parcel.key, outcome="correct", reason=str(os.getpid()),
        host="worker", cpu="some", took_s=0.1, finished="2026-11-16T00:00:00+00:00",
    )  # fmt: skip
    return json.dumps(encode(row)), "{}"
