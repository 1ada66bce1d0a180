"""How the service does under load: many clients at once on /v1/classify, beside the bare model in the same run.

The service runs in a process of its own, the clients in this one, all on this machine. Every answer is compared with
the bare model's. Each client sends its next request when it has the answer to the last.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import numpy as np

from unsee.data import load_data
from unsee.errors import ModelError
from unsee.models import load_model
from unsee.models.local import LocalModel
from unsee.models.remote.remote_model import image_file
from unsee.runs.prompt import TEMPLATE
from unsee.serve.engine import ClassList, Engine, Glance
from unsee.types import Floats

CLIENTS = 64
SECONDS = 120.0
SENT_IMAGES = 192  # different ones, sent again and again: the service keeps none of them
SENT_AT_ONCE = 64
WARM_UP_SHARE = 0.25  # of the time, before memory is compared
CLOSE = 1e-4  # how near a score must be to the bare model's


@dataclass(frozen=True)
class LoadResult:
    """What was measured. Throughputs are images a second, times are seconds, memory is bytes of the service."""

    clients: int
    seconds: float
    threads: int  # of the model, in the service and bare
    requests: int
    server_errors: int  # 5xx
    refused: int  # 4xx
    failed: int  # no answer at all
    wrong: int  # answers that are not the bare model's
    p50: float
    p99: float
    throughput: float
    bare_throughput: float
    ratio: float
    cpu_per_request: float  # seconds of the service, model included; does not depend on what else the machine does
    bare_cpu_per_image: float
    memory_warm: int
    memory_end: int
    memory_growth: float

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def measure_load(
    clients: int = CLIENTS,
    seconds: float = SECONDS,
    model: str = "mini",
    threads: int | None = None,
    images: int = SENT_IMAGES,
    say: Callable[[str], None] = lambda text: None,
) -> LoadResult:
    """Serves a model, loads it, and compares it with the bare one. threads: by default all cores but one."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = threads or max(1, cores - 1)  # one core for the clients and the service around the model
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        local = load_model(model, threads=threads)
        if not isinstance(local, LocalModel):
            raise ModelError(f"{model} does not run on this machine")
        data = load_data("demo")
        chosen = data.test.subset(range(min(images, len(data.test))))
        files = [image_file(chosen, row) for row in range(len(chosen))]
        bare = Bare(local, [chosen.read(row) for row in range(len(chosen))], data.class_names)
        first = bare.throughput()
        say(f"bare model: {first:.1f} images a second in batches of {SENT_AT_ONCE}, {threads} threads")
        say(f"{clients} clients for {seconds:g} s")
        with _service(model, threads) as (port, pid):
            seen = asyncio.run(load(port, pid, files, bare.answers, data.class_names, clients, seconds))
        again = bare.throughput()
        say(f"bare model: {again:.1f} images a second")
        return seen.result(clients, threads, (first + again) / 2, bare.cpu)
    finally:
        torch.set_num_threads(before)


class Bare:
    """The model without the service: its batched throughput, and what it answers."""

    def __init__(self, model: LocalModel, images: Sequence[object], names: Sequence[str]) -> None:
        classes = ClassList(tuple(names), None, TEMPLATE)
        self._engine = Engine(model)
        self._glances = [Glance(model.encoder.prepare(image), classes) for image in images]
        self.answers: list[Floats] = []
        self.cpu = float("inf")  # seconds for one image

    def throughput(self) -> float:
        """Images a second, decoded and prepared before; the median over batches."""
        self._engine.classify(self._glances[:2])  # what is computed once is not timed
        rates: list[float] = []
        self.answers = []
        worked = time.process_time()
        for start in range(0, len(self._glances), SENT_AT_ONCE):
            part = self._glances[start : start + SENT_AT_ONCE]
            began = time.perf_counter()
            self.answers.extend(self._engine.classify(part))
            rates.append(len(part) / (time.perf_counter() - began))
        self.cpu = min(self.cpu, (time.process_time() - worked) / len(self._glances))
        return float(np.median(rates))


@dataclass
class Seen:
    """What the clients saw."""

    times: list[float]
    statuses: list[int]
    wrong: int
    failed: int
    seconds: float
    cpu: float
    memory: list[tuple[float, int]]

    def result(self, clients: int, threads: int, bare: float, bare_cpu: float) -> LoadResult:
        """The numbers to print."""
        answered = sum(status == 200 for status in self.statuses)
        p50, p99 = (float(p) for p in np.percentile(self.times or [float("nan")], [50, 99]))
        warm = [size for when, size in self.memory if when >= WARM_UP_SHARE * self.seconds] or [0]
        start, end = max(warm[: max(1, len(warm) // 10)]), warm[-1]
        return LoadResult(
            clients=clients,
            seconds=round(self.seconds, 2),
            threads=threads,
            requests=len(self.statuses),
            server_errors=sum(status >= 500 for status in self.statuses),
            refused=sum(400 <= status < 500 for status in self.statuses),
            failed=self.failed,
            wrong=self.wrong,
            p50=p50,
            p99=p99,
            throughput=answered / self.seconds,
            bare_throughput=bare,
            ratio=answered / self.seconds / bare,
            cpu_per_request=self.cpu / max(1, answered),
            bare_cpu_per_image=bare_cpu,
            memory_warm=start,
            memory_end=end,
            memory_growth=end / start - 1 if start else 0.0,
        )


class Wire:
    """One client's connection. As lean as can be: the clients share the machine with what they measure."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answer.partition("content-length:")[2].partition("\r\n")[0])
        return int(answer.split(" ", 2)[1]), await reader.readexactly(length)

    async def close(self) -> None:
        """The next request opens a new connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def load(
    port: int,
    pid: int,
    files: Sequence[bytes],
    answers: Sequence[Floats],
    names: Sequence[str],
    clients: int,
    length: float,
) -> Seen:
    """What so many clients see of the service on this port, for this long; answers are the right ones."""
    bodies = [
        json.dumps(
            {"inputs": base64.b64encode(file).decode(), "parameters": {"candidate_labels": list(names)}}
        ).encode()
        for file in files
    ]
    seen = Seen([], [], 0, 0, 0.0, 0.0, [])
    turns = itertools.count()
    began = time.perf_counter()

    async def client() -> None:
        connection = Wire(port)
        while time.perf_counter() - began < length:
            i = next(turns) % len(bodies)
            start = time.perf_counter()
            try:
                status, content = await connection.post("/v1/classify", bodies[i])
            except (OSError, ValueError, asyncio.IncompleteReadError):
                seen.failed += 1
                await connection.close()
                continue
            seen.times.append(time.perf_counter() - start)
            seen.statuses.append(status)
            if status == 200 and not _right(content, names, answers[i]):
                seen.wrong += 1
        await connection.close()

    async def watch() -> None:
        while True:
            seen.memory.append((time.perf_counter() - began, _resident(pid)))
            await asyncio.sleep(0.5)

    watcher, worked = asyncio.create_task(watch()), _worked(pid)
    await asyncio.gather(*(client() for _ in range(clients)))
    seen.seconds, seen.cpu = time.perf_counter() - began, _worked(pid) - worked
    watcher.cancel()
    return seen


def _right(content: bytes, names: Sequence[str], answer: Floats) -> bool:
    rows = json.loads(content)
    scores = {row["label"]: row["score"] for row in rows}
    return len(rows) == len(names) and all(
        abs(scores.get(name, -1.0) - float(p)) < CLOSE for name, p in zip(names, answer, strict=True)
    )


def _worked(pid: int) -> float:
    """Seconds of processor time that a process has used; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def _resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


@contextmanager
def _service(model: str, threads: int) -> Iterator[tuple[int, int]]:
    """The service in a process of its own; -> its port and process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "unsee.cli", "serve", "--model", model, "--port", str(port)]
        command += ["--state", state, "--threads", str(threads)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            _wait(port, process)
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


def _wait(port: int, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and process.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise ModelError("the service did not start; try: unsee serve")
