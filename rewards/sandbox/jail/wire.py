"""Messages between the processes of the sandbox: JSON with its length before it."""

import json
import os
import select
import struct
import time
from typing import Any

DAY = 86400.0


class Gone(BaseException):
    """The other process ended, took too long or broke the protocol; `except Exception` does not
    catch it."""


def send(fd: int, message: Any) -> None:
    """Write one message."""
    body = json.dumps(message).encode()
    data = memoryview(struct.pack("<I", len(body)) + body)
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        raise Gone("the process ended") from error


def receive(fd: int, limit: int = 1 << 32, deadline: float | None = None) -> Any:
    """Read one message.

    Args:
        fd: a pipe or socket.
        limit: largest message in bytes.
        deadline: value of `time.monotonic()` by which all of it must have arrived.

    Raises:
        Gone: the stream ended, the message is too long or not JSON, or the deadline passed.
    """
    deadline = time.monotonic() + DAY if deadline is None else deadline
    (size,) = struct.unpack("<I", _exactly(fd, 4, deadline))
    if size > limit:
        raise Gone(f"a message of {size} bytes; the limit is {limit}")
    try:
        return json.loads(_exactly(fd, size, deadline))
    except (ValueError, RecursionError) as error:
        raise Gone("a message that cannot be read") from error


def _exactly(fd: int, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        left = deadline - time.monotonic()
        if left < 0 or not select.select([fd], [], [], left)[0]:
            raise Gone("out of time")
        try:
            part = os.read(fd, min(size - len(data), 1 << 20))
        except OSError:
            part = b""
        if not part:
            raise Gone("the process ended")
        data += part
    return bytes(data)
