"""Objects with pictures in them, between two processes, without a second copy on either side.

Pickle's protocol 5 leaves large buffers out of the stream; they are written behind it as they lie
in memory and are read into the arrays that will hold them. Both ends must be this module.
"""

import os
import pickle
from multiprocessing.connection import Connection
from typing import Any

_LARGE = 1 << 16
"""Bytes from which a buffer travels by itself; smaller ones are cheaper in the stream."""


def send(connection: Connection, value: object) -> None:
    """Write an object; blocks until the other end has taken it.

    Raises:
        OSError: the other end is gone.
    """
    buffers: list[memoryview] = []

    def keep_in_stream(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LARGE:
            return True
        buffers.append(raw)
        return False

    stream = pickle.dumps(value, protocol=5, buffer_callback=keep_in_stream)
    connection.send(([buffer.nbytes for buffer in buffers], stream))
    for buffer in buffers:
        while buffer:
            buffer = buffer[os.write(connection.fileno(), buffer) :]


def receive(connection: Connection) -> Any:
    """Read an object that `send` wrote.

    Raises:
        EOFError: the other end is gone.
        OSError: the connection broke.
    """
    sizes, stream = connection.recv()
    buffers = [bytearray(size) for size in sizes]
    for buffer in buffers:
        room = memoryview(buffer)
        while room:
            count = os.readv(connection.fileno(), [room])
            if not count:
                raise EOFError("the connection ended within an object")
            room = room[count:]
    return pickle.loads(stream, buffers=buffers)
