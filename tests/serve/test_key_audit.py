"""The audit of a service as a key sees it: with a key that may leave the prompt out, and with one that may not."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unsee
from tests.serve.servers import ThreadServer
from unsee.audit import service_sample
from unsee.audit.audit import audit
from unsee.audit.record import AuditRecord
from unsee.audit.service_routes import SERVICE_ROUTES, ServiceAudit
from unsee.cli import main
from unsee.models.remote.remote_model import RemoteModel
from unsee.models.remote.wire import pack
from unsee.serve.keys import add_key, read_keys

FORGET = ("bird", "cat")
SIZES = {"iterations": 3, "population": 6, "shots": 2, "contexts": 2, "shared": 3, "own": 2}


@pytest.fixture(scope="module")
def guarded(model, data, tmp_path_factory):
    """A finished run, a service with its prompt deployed, and keys with and without the duty to use it."""
    folder = tmp_path_factory.mktemp("guarded")
    tuner = unsee.PromptTuner(FORGET, serve="mask", **SIZES).fit(model, data, out=folder / "run")
    tuner.finish(folder / "run", tuner.run_.bind(data.test))
    keys = {name: add_key(folder / "keys", name) for name in ("tuner", "consumer")}
    with (folder / "keys").open("a") as file:
        file.write('prompt = "pets"\n')
    prompt = {"pets": pack({"contexts": tuner.prompt.contexts}, {"card": tuner.prompt.card().model_dump_json()})}
    server = ThreadServer(model, folder / "state", read_keys(folder / "keys"), deploy=prompt)
    yield server, folder / "run", keys
    server.stop()


def test_a_key_that_must_use_the_prompt_gets_no_forgotten_class_however_it_asks(guarded, data, model):
    server, run, keys = guarded
    with RemoteModel(server.url, keys["consumer"]) as remote:
        found = audit(run, remote, data, parts=["names", "service"])
        with pytest.raises(unsee.ModelError, match="may classify, but not try prompts"):
            remote.bind(data.test.subset([0]), data.class_names).confidences(np.zeros((1, 2, 64), np.float32))
    service = found.part("service", ServiceAudit)
    ways = {way.name: way for way in service.ways}
    assert (service.role, service.open_routes) == ("classify", ())
    assert all(way.recognised is None or way.recognised.value == 0 for way in service.ways)
    assert ways["prompt left out"].refused == 0  # answered, and under the prompt
    for name in ("another template", "forgotten names only", "/v1/confidences, a template", "another prompt named"):
        assert ways[name].refused == ways[name].images
    assert found.after.accuracy_forgotten.value == 0
    assert (found.serve, found.before, found.serving) == ("by the service", None, {})
    assert any(note.startswith("names:") for note in found.not_audited)
    here = unsee.load_prompt(run).confidences(model, data.test)
    assert found.after.scores.acc_mem == pytest.approx(accuracy_kept(here, data))
    assert (run / "audit-service.json").is_file()
    assert not (run / "audit.json").is_file()


def accuracy_kept(confidences, data) -> float:
    kept = ~np.isin(np.array(data.class_names)[data.test.labels], FORGET)
    return float((confidences.argmax(axis=1) == data.test.labels)[kept].mean())


def test_a_key_that_may_leave_the_prompt_out_gets_what_the_model_knows(guarded, data, capsys):
    server, run, keys = guarded
    with RemoteModel(server.url, keys["tuner"]) as remote:
        unsee.load_prompt(run).deploy(remote, "mine")
    skipped = "templates,distractors,pictures,attacks,rebuild,membership,names"
    command = ["audit", str(run), "--model", server.url, "--key", keys["tuner"], "--skip", skipped, "--json"]
    assert main([*command, "--no-cache"]) == 0
    printed = json.loads(capsys.readouterr().out)
    service = ServiceAudit.model_validate(printed["more"]["service"])
    ways = {way.name: way for way in service.ways}
    assert ways["as documented"].recognised.value == 0
    plain = ways["/v1/confidences, a template"].recognised
    assert ways["prompt left out"].recognised == plain
    assert (service.role, len(service.open_routes)) == ("tune", 3)
    printed.pop("run")
    shown = SERVICE_ROUTES.tables(AuditRecord.model_validate(printed))[0]
    assert [row[0] for row in shown.rows] == list(ways)
    (run / "audit.json").unlink()


def test_a_service_is_asked_about_a_sample_and_says_how_long_that_takes(guarded, data, monkeypatch):
    server, run, keys = guarded
    monkeypatch.setattr(service_sample, "EACH_ASKED", 3)
    monkeypatch.setattr(service_sample, "ASKED_KEPT", 8)  # one of each kept class
    monkeypatch.setattr(service_sample, "EACH_OFTEN", 2)
    said = []
    with RemoteModel(server.url, keys["consumer"]) as remote:
        found = audit(run, remote, data, parts=["pictures", "service"], say=said.append)
        everything = audit(run, remote, data, parts=["names"], all_images=True)
    some = 2 * 3 + 8
    assert (found.images, everything.images) == (some, len(data.test))
    assert found.not_audited[0].startswith(f"{len(data.test) - some} test images")
    assert not any("test images" in note for note in everything.not_audited)
    assert found.after.accuracy_forgotten.value == 0
    expected = next(int(line.split()[5]) for line in said if line.startswith("the service is asked"))
    assert found.image_queries == pytest.approx(expected, rel=0.25)
    assert any(line.startswith(f"{some} answers in ") and "the rest takes about" in line for line in said)


def test_a_sample_has_images_of_every_class_and_most_of_those_that_are_forgotten():
    labels, forget = np.repeat(np.arange(100), 300), np.arange(100) < 2
    rows = service_sample.usual_rows(labels, forget, 0)
    few = service_sample.few_rows(labels, forget, 0)
    assert np.bincount(labels[rows]).tolist() == [200] * 2 + [6] * 98
    assert np.bincount(labels[few]).tolist() == [50] * 2 + [1] * 98
    assert np.array_equal(rows, service_sample.usual_rows(labels, forget, 0))
