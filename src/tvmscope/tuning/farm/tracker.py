"""Talks to a TVM RPC tracker without TVM: which servers there are, and which are free.

The protocol is TVM's own (tvm/rpc/tracker.py): a magic number in both directions, then JSON
messages, each after its length. TVM's client for it waits forever; this one has time limits.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvmscope.errors import RunError, UsageError
from tvmscope.messages import msg, msgn

PORT = 9190
_MAGIC = 0x2F271
_SUCCESS, _REQUEST, _SUMMARY = 0, 4, 6
_LONGEST = 1 << 20
_ANSWER_S = 5.0

Address = tuple[str, int]


class NoTracker(RunError):
    """No tracker answers at the address, or not any more."""


def parse_address(text: str) -> Address:
    """Parse `host`, `host:port` or `[::1]:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = text, str(PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(
            msg(
                "'{text}' is not an address; write host:port, such as 127.0.0.1:{port}",
                text=text,
                port=PORT,
            )
        )
    return host.strip("[]"), int(port)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A server that the tracker has reserved for us."""

    host: str
    port: int
    match_key: str
    """The key that the server expects; it drops the connection if the key does not arrive within
    seconds."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that a tracker knows."""

    key: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Device:
    """A server's description of its machine, so that records say where they were measured."""

    cpu: str
    threads: int
    features: tuple[str, ...] = ()
    """Features that the operating system reports, by LLVM's names."""
    llvm_cpu: str = ""
    triple: str = ""
    gpu: str | None = None
    gpu_arch: str | None = None


@dataclass(frozen=True, kw_only=True)
class Queue:
    """All servers of one key together; the tracker does not report which of them are busy."""

    key: str
    servers: int
    free: int
    waiting: int
    """Clients that wait for a server."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A tracker's servers and queues."""

    servers: tuple[Server, ...]
    queues: tuple[Queue, ...]

    def count(self, key: str) -> int:
        """Return how many servers have this key."""
        return sum(server.key == key for server in self.servers)


def summary(address: Address, *, timeout_s: float = _ANSWER_S) -> Summary:
    """Return the tracker's servers and queues."""
    with _connected(address, timeout_s) as stream:
        _send(stream, [_SUMMARY])
        code, data = _receive(stream)
    if code != _SUCCESS:
        raise RunError(msg("the tracker at {address} returned no summary", address=_text(address)))
    servers = tuple(
        Server(key=entry["key"].removeprefix("server:"), address=":".join(map(str, entry["addr"])))
        for entry in data["server_info"]
    )
    keys = sorted({server.key for server in servers} | data["queue_info"].keys())
    queues = (
        Queue(
            key=key,
            servers=sum(server.key == key for server in servers),
            free=data["queue_info"].get(key, {}).get("free", 0),
            waiting=data["queue_info"].get(key, {}).get("pending", 0),
        )
        for key in keys
    )
    ordered = sorted(servers, key=lambda server: (server.key, server.address))
    return Summary(
        servers=tuple(ordered), queues=tuple(q for q in queues if q.servers or q.waiting)
    )


def request(address: Address, key: str, *, wait_s: float) -> Place:
    """Return a free server, as soon as there is one."""
    end = time.monotonic() + wait_s
    with _connected(address, min(wait_s, _ANSWER_S)) as stream:
        _send(stream, [_REQUEST, key, "", 1])
        stream.settimeout(max(0.1, end - time.monotonic()))
        try:
            code, data = _receive(stream)
        except TimeoutError:
            known = summary(address).count(key)
            busy = msgn("{count} server, busy", "{count} servers, all busy", count=known)
            raise RunError(
                msg(
                    "the tracker at {address} has {servers} for key '{key}' within {wait_s:g} s; "
                    "see tvmscope farm status",
                    address=_text(address),
                    servers=busy if known else msg("no server"),
                    key=key,
                    wait_s=wait_s,
                )
            ) from None
    if code != _SUCCESS:
        raise RunError(
            msg(
                "the tracker at {address} refused a request for '{key}'",
                address=_text(address),
                key=key,
            )
        )
    host, port, match_key = data
    return Place(host=host, port=port, match_key=match_key)


@contextlib.contextmanager
def _connected(address: Address, timeout_s: float) -> Iterator[socket.socket]:
    try:
        stream = socket.create_connection(address, timeout_s)
    except OSError as e:
        raise NoTracker(
            msg(
                "there is no tracker at {address} ({reason}); tvmscope farm tracker starts one",
                address=_text(address),
                reason=str(e),
            )
        ) from e
    with stream:
        try:
            stream.sendall(struct.pack("<i", _MAGIC))
            magic = struct.unpack("<i", _exactly(stream, 4))[0]
            if magic != _MAGIC:
                raise RunError(
                    msg("the service at {address} is not a TVM RPC tracker", address=_text(address))
                )
            yield stream
        except TimeoutError as e:
            raise RunError(
                msg(
                    "{address} did not answer as a tracker in {timeout_s:g} s",
                    address=_text(address),
                    timeout_s=timeout_s,
                )
            ) from e
        except OSError as e:
            raise NoTracker(
                msg(
                    "the tracker at {address} closed the connection: {reason}",
                    address=_text(address),
                    reason=str(e),
                )
            ) from e


def _send(stream: socket.socket, value: Any) -> None:
    data = json.dumps(value).encode()
    stream.sendall(struct.pack("<i", len(data)) + data)


def _receive(stream: socket.socket) -> Any:
    size = struct.unpack("<i", _exactly(stream, 4))[0]
    if not 0 < size <= _LONGEST:
        raise RunError(msg("the service there is not a TVM RPC tracker"))
    return json.loads(_exactly(stream, size))


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = stream.recv(size - len(data))
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        data += piece
    return data


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
