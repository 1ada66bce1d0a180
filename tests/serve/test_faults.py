"""Nothing is lost, spent twice or answered wrongly when the network fails and the server is killed."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

import unsee
from tests.serve.proxy import FAULTS, FaultyProxy
from tests.serve.servers import ProcessServer, ThreadServer
from unsee.models.remote import connection
from unsee.models.remote.remote_model import RemoteModel
from unsee.serve.keys import add_key

SIZES = {"population": 6, "shots": 3, "contexts": 2, "shared": 3, "own": 2}
FILES = ("prompt.safetensors", "prompt.json")


class Killer:
    """Kills the server, starts it again after a pause, and so on, while a run goes on."""

    def __init__(self, server: ProcessServer, times: int, every: float, away: float) -> None:
        self.kills = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(server, times, every, away))
        self._thread.start()

    def _run(self, server: ProcessServer, times: int, every: float, away: float) -> None:
        for _ in range(times):
            if self._stop.wait(every):
                return
            server.kill()
            self.kills += 1
            time.sleep(away)
            server.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def tune(url, key, data, out, forget, **settings):
    """A run through the proxy; -> the model, which knows what was spent."""
    model = RemoteModel(url, key, patience=300)
    try:
        tuner = unsee.PromptTuner(forget, seed=0, **settings).fit(model, data, out=out)
        tuner.finish(out, tuner.run_.bind(data.test))
        return model
    except BaseException:
        model.close()
        raise


def check_faults(processes, source, data, local, folder, *, kills, every, share, forget, **settings):
    """A run through faults ends as `local`, the same run without any; both ledgers agree."""
    key = add_key(folder / "keys.toml", "alice")
    with (folder / "keys.toml").open("a") as file:
        file.write("rate = 1000000\n")
    server = ProcessServer(processes, source, folder / "state", folder / "keys.toml")
    proxy = FaultyProxy(server.port, share)
    killer = Killer(server, kills, every, away=0.3)
    try:
        with tune(proxy.url, key, data, folder / "run", forget, **settings) as model:
            killer.stop()
            with RemoteModel(server.url, key) as direct:
                spent = direct.usage()["spent"]
    finally:
        killer.stop()
        proxy.stop()
        server.kill()
    for name in FILES:
        assert (folder / "run" / name).read_bytes() == (local / name).read_bytes()
    assert spent["candidates"] == model.spent.candidates
    assert spent["image_queries"] == model.spent.image_queries
    result = json.loads((folder / "run" / "result.json").read_text())
    # Beyond the run's own ledger: two plain questions, and the prompt on the test images and on the shots.
    assert spent["candidates"] == result["ledger"]["candidates"] + 4
    return proxy.counts, killer.kills


def test_a_run_through_faults_and_kills_ends_with_the_same_bytes(
    processes, model, model_folder, data, tmp_path, monkeypatch
):
    monkeypatch.setattr(connection, "READ", 5.0)
    settings = {**SIZES, "iterations": 25}
    unsee.PromptTuner(["cat"], seed=0, **settings).fit(model, data, out=tmp_path / "local")
    counts, kills = check_faults(
        processes,
        model_folder,
        data,
        tmp_path / "local",
        tmp_path,
        kills=1,
        every=0.3,
        share=0.4,
        forget=["cat"],
        **settings,
    )
    assert kills == 1
    assert all(counts[fault] for fault in FAULTS), counts


@pytest.mark.slow
def test_a_whole_run_of_the_embedded_model_through_faults_and_five_kills_ends_with_the_same_bytes(
    processes, tmp_path, demo_features
):
    data, forget = unsee.load_data("demo"), ["airplane", "automobile", "bird", "cat"]
    local = unsee.load_model("mini", cache=unsee.FeatureCache(demo_features))
    unsee.PromptTuner(forget, seed=0).fit(local, data, out=tmp_path / "local")
    counts, kills = check_faults(
        processes, "mini", data, tmp_path / "local", tmp_path, kills=5, every=8, share=0.2, forget=forget
    )
    assert kills == 5
    assert sum(counts[fault] for fault in FAULTS) > 60
    assert all(counts[fault] for fault in FAULTS), counts


def test_an_answer_that_was_lost_with_the_client_is_not_paid_again(served, keys, data):
    """A killed client asks the same again when it is resumed, and gets the answer that it has paid for."""
    images, contexts = data.test.subset(range(3)), np.full((2, 2, 64), 0.01, dtype=np.float32)
    with RemoteModel(served.url, keys["bob"]) as killed:
        before = killed.usage()["spent"]["candidates"]
        first = killed.bind(images, data.class_names).confidences(contexts)
        killed.connection._arrived.clear()  # it died before it could say that the answer had arrived
    with RemoteModel(served.url, keys["bob"]) as resumed:
        again = resumed.bind(images, data.class_names).confidences(contexts)
        assert np.array_equal(first, again)
        assert resumed.usage()["spent"]["candidates"] == before + 2  # and says that this one has arrived
        resumed.bind(images, data.class_names).confidences(contexts)  # asked anew: paid anew
        assert resumed.usage()["spent"]["candidates"] == before + 4


def test_a_run_waits_for_a_server_that_is_away_and_says_so(model, data, tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "SILENT", 0.1)
    said = []
    server = ThreadServer(model, tmp_path / "state")
    with RemoteModel(server.url, say=said.append, patience=30) as remote:
        bound = remote.bind(data.test.subset(range(2)), data.class_names)
        server.stop()
        again = []

        def restart() -> None:
            time.sleep(0.5)
            again.append(ThreadServer(model, tmp_path / "state", port=server.port))

        thread = threading.Thread(target=restart)
        thread.start()
        assert bound.confidences(np.zeros((1, 2, 64), np.float32)).shape == (1, 2, 10)
        thread.join()
    again[0].stop()
    assert "does not answer" in said[0]
    assert "answers again" in said[1]


def test_a_run_whose_server_stays_away_stops_and_can_be_resumed(model, data, tmp_path):
    server = ThreadServer(model, tmp_path / "state")
    settings = {**SIZES, "iterations": 8}
    unsee.PromptTuner(["cat"], seed=0, **settings).fit(model, data, out=tmp_path / "whole")

    def leave(generation, _settings):
        if generation.number == 3:
            server.stop()

    with RemoteModel(server.url, patience=0.5) as remote, pytest.raises(unsee.ModelError, match="unsee resume"):
        unsee.PromptTuner(["cat"], seed=0, **settings).fit(remote, data, out=tmp_path / "cut", watch=leave)
    server = ThreadServer(model, tmp_path / "state")
    with RemoteModel(server.url) as remote:
        unsee.PromptTuner(["cat"], seed=0, **settings).resume(remote, data, tmp_path / "cut")
        assert remote.usage()["spent"]["candidates"] == 20 + 6 * 6 + 2 + 1  # every candidate once, and the plain prompt
    server.stop()
    for name in FILES:
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
