"""A model behind `unsee serve` gives what the same model gives in this process, and no more."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack

import numpy as np
import pytest

import unsee
from tests.serve.servers import ThreadServer
from unsee.models.remote.remote_model import RemoteModel, fill_up, first_rows, image_file
from unsee.models.remote.wire import LOGS, MEDIA, TOP, Message, pack, unpack
from unsee.serve.disclosure import Disclosure
from unsee.serve.engine import ClassList
from unsee.serve.limits import Limits
from unsee.serve.policy import Under
from unsee.serve.server import make_server

SIZES = {"iterations": 6, "population": 6, "shots": 3, "contexts": 2, "shared": 3, "own": 2}


def tune(model, data, out, **settings):
    return unsee.PromptTuner(["cat", "bird"], "lcs", seed=0, **{**SIZES, **settings}).fit(model, data, out=out)


def losses(run):
    return [json.loads(line)["best_loss"] for line in (run / "journal.jsonl").read_text().splitlines()]


def test_a_run_over_http_ends_with_the_bytes_of_a_local_one(model, remote, data, tmp_path):
    before = remote.usage()["spent"]
    here, there = tune(model, data, tmp_path / "here"), tune(remote, data, tmp_path / "there")
    for name in ("prompt.safetensors", "prompt.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    assert losses(tmp_path / "here") == losses(tmp_path / "there")
    assert here.ledger_.image_queries == there.ledger_.image_queries
    spent = remote.usage()["spent"]
    assert spent["candidates"] - before["candidates"] == remote.spent.candidates == 36 + 1  # and one plain question
    assert spent["image_queries"] - before["image_queries"] == remote.spent.image_queries == 37 * 60


def test_a_guided_run_over_http_asks_about_some_images_and_ends_with_the_bytes_of_a_local_one(
    model, remote, data, tmp_path
):
    before, given = remote.usage()["spent"], {"method": "guided", "shots": 4, "image_queries": 3_000}
    for where, out in ((model, "here"), (remote, "there")):
        tuner = unsee.PromptTuner(["cat", "bird"], **given).fit(where, data, out=tmp_path / out)
    for name in ("prompt.safetensors", "prompt.json", "replies.bin"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    spent = remote.usage()["spent"]["image_queries"] - before["image_queries"]
    assert 2_000 < spent == remote.spent.image_queries == tuner.ledger_.image_queries <= 3_000


def test_contexts_before_some_names_only_work_over_http(model, remote, data, tmp_path):
    tune(model, data, tmp_path / "here", applies_to="forgotten")
    tune(remote, data, tmp_path / "there", applies_to="forgotten")
    assert (tmp_path / "here/prompt.json").read_bytes() == (tmp_path / "there/prompt.json").read_bytes()


def test_a_run_cut_by_its_budget_and_resumed_ends_with_the_bytes_of_one_never_cut(remote, data, tmp_path):
    tune(remote, data, tmp_path / "whole")
    tune(remote, data, tmp_path / "cut", budget=20)  # in the middle of a generation
    unsee.PromptTuner(["cat", "bird"], seed=0, **SIZES).resume(remote, data, tmp_path / "cut", budget=36)
    assert (tmp_path / "whole/prompt.json").read_bytes() == (tmp_path / "cut/prompt.json").read_bytes()


def test_the_second_upload_is_free(served, keys, data):
    with RemoteModel(served.url, keys["dave"]) as remote:  # who has uploaded nothing yet
        images = data.test.subset(range(0, 60, 3))
        first, second = (remote.bind(images, data.class_names) for _ in range(2))
        assert (first.images_encoded, second.images_encoded, second.images_from_cache) == (20, 0, 20)
        wider = remote.bind(data.test.subset(range(0, 60, 2)), data.class_names)
    assert wider.images_encoded == 20  # ten of its thirty were there


class Counted(str):
    """A hash that counts how often it is compared with another."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)


def test_finding_what_to_upload_takes_time_in_proportion_to_the_images():
    digests = [Counted(f"{i // 2:032x}") for i in range(4000)]  # every image twice
    rows = first_rows(digests, {f"{i:032x}" for i in range(1000, 2000)})
    assert rows == list(range(2000, 4000, 2)), "each missing image once, at its first place"
    assert Counted.compared <= 4 * len(digests)


def test_a_deleted_set_is_gone_and_the_images_of_others_stay(served, keys, ask, data):
    with RemoteModel(served.url, keys["frank"]) as remote:
        small, large = (remote.bind(data.test.subset(range(n)), data.class_names) for n in (3, 8))
        stored = remote.usage()["spent"]["stored_bytes"]
        assert ask("DELETE", f"/v1/images/{large._facts['images']}", "frank").status_code == 204
        assert ask("GET", f"/v1/images/{large._facts['images']}", "frank").status_code == 404
        assert small.zero_shot("a {}.").shape == (3, 10)
        assert remote.usage()["spent"]["stored_bytes"] < stored
        assert remote.bind(data.test.subset(range(8)), data.class_names).images_encoded == 5


def test_files_and_hashes_can_be_uploaded_by_hand(ask, data):
    files = [("images", (f"{row}.png", image_file(data.test, row))) for row in (50, 51)]
    made = ask("POST", "/v1/images", "frank", files=files).json()
    assert (made["count"], made["encoded"]) == (2, 2)
    assert ask("GET", f"/v1/images/{made['images']}", "frank").json()["count"] == 2
    missing = ask("POST", "/v1/images", "frank", json={"images": ["0" * 64]})
    assert missing.status_code == 404
    assert missing.json()["missing"] == ["0" * 64]


def test_arrays_and_pil_images_arrive_as_they_are(model, remote, data):
    pixels = np.stack([np.asarray(data.test.read(row)) for row in range(4)])
    pil = [data.test.read(row) for row in range(4)]
    contexts = np.zeros((1, 2, 64), dtype=np.float32)
    here = model.bind(pixels, data.class_names).confidences(contexts)
    assert np.array_equal(remote.bind(pixels, data.class_names).confidences(contexts), here)
    assert np.array_equal(remote.bind(pil, data.class_names).confidences(contexts), here)


def test_a_population_too_large_for_one_request_is_sent_in_parts(model, remote, data, monkeypatch):
    contexts = np.random.default_rng(0).normal(0, 0.02, (9, 2, 64)).astype(np.float32)
    images = data.test.subset(range(5))
    monkeypatch.setitem(remote.limits, "candidates", 2)
    found = remote.bind(images, data.class_names).confidences(contexts)
    assert np.allclose(found, model.bind(images, data.class_names).confidences(contexts), rtol=1e-5)
    assert remote.spent.candidates == 9


def test_zero_shot_answers_are_the_same(model, served, keys, data):
    images, template = data.test.subset(range(7)), "a photo of a {}."
    here = model.bind(images, data.class_names).zero_shot(template)
    with RemoteModel(served.url, keys["erin"]) as remote:  # who has uploaded none of these: all are encoded together
        assert np.array_equal(remote.bind(images, data.class_names).zero_shot(template), here)


@pytest.fixture
def closed(model, tmp_path):
    """Starts servers that tell less."""
    with ExitStack() as stack:

        def start(answers, card="full", say=None):
            server = ThreadServer(model, tmp_path / answers, disclosure=Disclosure.parse(answers, card))
            stack.callback(server.stop)
            return stack.enter_context(RemoteModel(server.url, say=say))

        yield start


def test_a_withheld_card_is_worked_without(closed, data, tmp_path):
    said = []
    remote = closed("all", "none", said.append)
    assert remote.card.token_mean.tolist() == [0.0] * 64
    assert remote.card.token_std == 0.02
    assert "withholds the token statistics" in said[0]
    assert tune(remote, data, tmp_path / "run").valid_.h > 0


@pytest.mark.parametrize(("answers", "arrays"), [("top-2", {"top", "confidences"}), ("label", {"top"})])
def test_only_what_is_allowed_leaves_the_server(closed, data, tmp_path, answers, arrays):
    remote = closed(answers)
    bound = remote.bind(data.test.subset(range(4)), data.class_names)
    message = remote.ask(Message({"contexts": np.zeros((1, 2, 64), np.float32)}, bound._facts), 1, 4)
    assert set(message.arrays) == arrays
    assert message.arrays[TOP].shape == (1, 4, 2 if answers == "top-2" else 1)
    found = bound.confidences(np.zeros((1, 2, 64), np.float32))
    assert np.allclose(found.sum(axis=-1), 1, atol=1e-5)
    image = base64.b64encode(image_file(data.test, 0)).decode()
    body = {"inputs": image, "parameters": {"candidate_labels": ["cat", "dog", "bird"]}}
    labels = remote.connection.send("POST", "/v1/classify", json.dumps(body).encode(), "application/json").json()
    assert [row["score"] is None for row in labels] == [answers == "label"] * (2 if answers == "top-2" else 1)
    tuner = tune(remote, data, tmp_path / "run")
    assert tuner.valid_ == tuner.score(data.train.subset(tuner.config_.split.valid))


def test_the_top_answers_are_filled_up_evenly():
    top, known = np.array([[[2, 0]]], dtype=np.int32), np.array([[[0.6, 0.2]]], dtype=np.float32)
    assert np.allclose(fill_up(top, known, (1, 1, 4)), [[[0.2, 0.1, 0.6, 0.1]]])
    assert fill_up(top, known, (1, 1, 2)) is None  # there is no class 2


def test_a_prompt_is_deployed_used_and_withdrawn(model, remote, ask, data):
    tuner = unsee.PromptTuner(["cat"], seed=1, **SIZES).fit(model, data)
    tuner.prompt.deploy(remote, "no-cats")
    assert ask("GET", "/v1/prompts").json()["no-cats"]["forget"] == ["cat"]
    image = base64.b64encode(image_file(data.test, 3)).decode()
    rows = ask("POST", "/v1/classify", json={"inputs": image, "parameters": {"prompt": "no-cats"}}).json()
    here = tuner.prompt.classify(model, data.test.subset([3]), top=10)[0].after
    assert [row["label"] for row in rows] == [name for name, _ in here]
    assert [row["score"] for row in rows] == pytest.approx([p for _, p in here], abs=2e-5)
    remote.withdraw("no-cats")
    assert ask("GET", "/v1/prompts/no-cats").status_code == 404
    with pytest.raises(unsee.InputError, match="runs in this process"):
        tuner.prompt.deploy(model, "no-cats")


def test_the_service_honours_the_rule_that_a_prompt_carries(model, remote, ask, data):
    tuner = unsee.PromptTuner(["cat"], seed=1, serve="mask", **SIZES).fit(model, data)
    tuner.prompt.deploy(remote, "struck")
    seen = []
    for i in range(3):
        image = base64.b64encode(image_file(data.test, i)).decode()
        rows = ask("POST", "/v1/classify", json={"inputs": image, "parameters": {"prompt": "struck"}}).json()
        here = tuner.prompt.classify(model, data.test.subset([i]), top=10)[0].after
        assert [row["label"] for row in rows] == [name for name, _ in here]
        assert [row["score"] for row in rows] == pytest.approx([p for _, p in here], abs=2e-5)
        seen.append({row["label"]: row["score"] for row in rows}["cat"])
    assert seen == [0, 0, 0]
    remote.withdraw("struck")


def test_chance_in_answers_hangs_on_the_image_not_on_the_request():
    under = Under(ClassList(("cat", "dog", "bird")), forget=("cat",), rule="gate")
    suspect = np.array([0.8, 0.1, 0.1], dtype=np.float32)
    tops = [int(under.served(suspect, bytes([i])).argmax()) for i in range(30)]
    assert set(tops) == {0, 1, 2}
    assert [int(under.served(suspect, bytes([i])).argmax()) for i in range(30)] == tops


def test_classify_has_the_hugging_face_form(model, ask, data):
    labels = ["cat", "dog", "bird"]
    body = {"inputs": base64.b64encode(image_file(data.test, 0)).decode()}
    body["parameters"] = {"candidate_labels": labels, "hypothesis_template": "a sketch of a {}."}
    rows = ask("POST", "/v1/classify", json=body).json()
    here = model.bind(data.test.subset([0]), labels).zero_shot("a sketch of a {}.")[0]
    assert {row["label"]: pytest.approx(row["score"], abs=1e-6) for row in rows} == dict(zip(labels, here, strict=True))
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)


def test_plain_confidences_are_sent_to_whoever_does_not_ask_for_logs(remote, ask, data):
    bound = remote.bind(data.test.subset(range(3)), data.class_names)
    body = pack({"contexts": np.zeros((2, 2, 64), np.float32)}, bound._facts)
    found = unpack(ask("POST", "/v1/confidences", content=body, headers={"content-type": MEDIA}).content).arrays
    assert set(found) == {"confidences"}
    assert np.allclose(found["confidences"].sum(axis=-1), 1, atol=1e-5)
    assert LOGS not in found


def test_a_model_that_is_served_already_or_not_at_all_is_a_clear_line(remote, served, monkeypatch):
    with pytest.raises(unsee.InputError, match="does not know this key"):
        unsee.load_model(served.url, key="wrong")
    with pytest.raises(unsee.ModelError, match="cannot be reached"):
        RemoteModel("http://127.0.0.1:9", patience=0.3)
    with pytest.raises(unsee.InputError, match="for this machine only"):
        make_server(None, None, host="0.0.0.0", limits=Limits())
