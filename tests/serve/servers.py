"""Servers for tests: in a thread of this process, or in a process of their own that can be killed."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import httpx
import torch

import unsee
from unsee.serve.disclosure import Disclosure
from unsee.serve.keys import Keys, read_keys
from unsee.serve.limits import Limits
from unsee.serve.server import listen, make_server, run


class ThreadServer:
    """A server in a thread; stop it with `stop`."""

    def __init__(self, model, state: Path | str, keys: Keys | None = None, port: int = 0, **options) -> None:
        self.server = make_server(model, state, keys=keys, **options)
        self.socket = listen("127.0.0.1", port)
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self._thread.start()
        wait_until_ready(self.url)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        self.socket.close()
        assert not self._thread.is_alive()


class ProcessServer:
    """A server in a process of its own, always on the same port and with the same memory."""

    def __init__(self, processes, model: Path | str, state: Path | str, keys: Path | None = None) -> None:
        self._start = lambda: processes.Process(target=serve, args=(model, state, self.port, keys), daemon=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None
        self.start()

    def start(self) -> None:
        self.process = self._start()
        self.process.start()
        wait_until_ready(self.url)

    def kill(self) -> None:
        self.process.kill()  # SIGKILL: nothing in it can react
        self.process.join()

    def stop(self) -> int:
        """SIGTERM; -> the exit code."""
        self.process.terminate()
        self.process.join(60)
        return self.process.exitcode


def serve(model: Path | str, state: Path, port: int, keys: Path | None) -> None:
    torch.set_num_threads(1)
    loaded = unsee.load_model(model, threads=1)
    found = None if keys is None else read_keys(keys)
    server = make_server(loaded, state, keys=found, disclosure=Disclosure(), limits=Limits(), port=port)
    run(server, listen("127.0.0.1", port))
    os._exit(0)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_until_ready(url: str, seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise TimeoutError(f"{url} is not ready after {seconds} s")
