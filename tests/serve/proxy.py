"""A proxy between client and server that damages a share of the responses."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter

FAULTS = ("drop", "delay", "truncate", "duplicate", "reset")


class FaultyProxy:
    """Forwards HTTP requests one by one, and does one of FAULTS to a share of the responses.

    "duplicate" sends the request to the server twice, at the same time, and the response to the client twice, so that
    the second is in the way of the next one.
    """

    def __init__(self, port: int, share: float = 0.2, delay: float = 0.2, seed: int = 0) -> None:
        self.counts: Counter[str] = Counter()
        self._server_port, self._share, self._delay = port, share, delay
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait(10)
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await read_message(reader)
                if request is None or not await self._answer(request, writer):
                    return
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """Sends a response, or what is left of it; False if the connection is over."""
        fault = self._random.choice(FAULTS) if self._random.random() < self._share else "none"
        self.counts[fault] += 1
        if fault == "duplicate":
            response, _ = await asyncio.gather(self._ask(request), self._ask(request))
        else:
            response = await self._ask(request)
        if response is None or fault == "drop":
            return False
        if fault == "delay":
            await asyncio.sleep(self._delay)
        if fault == "reset":  # lingering for 0 seconds sends a reset instead of an end
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return False
        writer.write(response[: len(response) // 2] if fault == "truncate" else response)
        if fault == "duplicate":
            writer.write(response)
        await writer.drain()
        return fault != "truncate"

    async def _ask(self, request: bytes) -> bytes | None:
        """The server's response to one request; None if it is not there."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            return None
        try:
            writer.write(request)
            return await read_message(reader)
        except (OSError, asyncio.IncompleteReadError):
            return None
        finally:
            writer.close()


async def read_message(reader: asyncio.StreamReader) -> bytes | None:
    """A whole HTTP message with its body; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head + await reader.readexactly(length)
