"""Messages between the processes of the sandbox: JSON, one on a line."""

import json
import os
from typing import Any


class Gone(BaseException):
    """The other process ended or broke the protocol; `except Exception` does not catch it."""


def send(fd: int, message: Any) -> None:
    """Write one message."""
    data = memoryview(json.dumps(message).encode() + b"\n")
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        raise Gone("the process ended") from error


def receive(fd: int, limit: int = 1 << 32) -> Any:
    """Read one message; the other process sends the next one only after an answer.

    Args:
        fd: a pipe, a socket or a file.
        limit: largest message in bytes.

    Raises:
        Gone: the stream ended, or the message is too long or not JSON.
    """
    data = bytearray()
    while not data.endswith(b"\n"):
        try:
            part = os.read(fd, 1 << 20)
        except OSError:
            part = b""
        if not part:
            raise Gone("the process ended")
        data += part
        if len(data) > limit:
            raise Gone(f"a message of more than {limit} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Gone("a message that cannot be read") from error
