"""A request that brings the process down twice is refused by its hash, and others are not."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from contextlib import suppress

import httpx
import numpy as np
import pytest

from tests.serve.attackers import png
from tests.serve.servers import ProcessServer, ThreadServer
from unsee.models.remote.remote_model import image_file


def test_an_image_that_kills_the_process_twice_is_refused_and_others_are_not(model, data, tmp_path):
    files = [image_file(data.test, row) for row in range(2)]
    statuses = []
    for deaths in range(3):
        if deaths:  # what a process leaves that dies while it decodes the image
            (tmp_path / "running-0").write_bytes(hashlib.sha256(files[0]).digest() + bytes(32))
        server = ThreadServer(model, tmp_path)
        for file in files:
            inputs = base64.b64encode(file).decode()
            body = {"inputs": inputs, "parameters": {"candidate_labels": ["cat", "dog"]}}
            statuses.append(httpx.post(f"{server.url}/v1/classify", json=body).status_code)
        server.stop()
    assert statuses == [200, 200, 200, 200, 422, 200]


@pytest.mark.slow
def test_an_image_whose_decoding_was_killed_twice_is_refused_and_others_are_not(
    processes, model_folder, data, tmp_path
):
    """The kill comes from outside, in the middle of the work, as a fault in a decoder written in C would end it."""
    server = ProcessServer(processes, model_folder, tmp_path)
    poison = png(np.zeros((5000, 5000, 3), np.uint8), 9)
    about = hashlib.sha256(poison).digest()

    def classify(content: bytes) -> int:
        body = {"inputs": base64.b64encode(content).decode(), "parameters": {"candidate_labels": ["cat", "dog"]}}
        with suppress(httpx.TransportError):
            return httpx.post(f"{server.url}/v1/classify", json=body, timeout=60).status_code
        return 0

    for _ in range(2):
        asking = threading.Thread(target=classify, args=(poison,))
        asking.start()
        marks, ends = tmp_path / f"running-{server.process.pid}", time.monotonic() + 30
        while about not in marks.read_bytes() and time.monotonic() < ends:
            time.sleep(0.001)
        server.kill()
        asking.join()
        server.start()
    assert (classify(poison), classify(image_file(data.test, 0))) == (422, 200)
    server.kill()
