"""Whatever a key with a mandatory prompt asks, no answer leaves outside that prompt and its rule."""

from __future__ import annotations

import json
import random

import pytest

from tests.serve.test_policy import CONTEXTS, FORGET, SPELLINGS, asked, card, expected, message, spell
from tests.tiny import NAMES
from unsee.models.remote.remote_model import image_file
from unsee.models.remote.wire import pack

OUTSIDE = ("sofa", "rose", "kettle", "tram")
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
OPEN = {"/v1/card", "/v1/usage", "/healthz", "/readyz", "/openapi.json"}
TEMPLATES = ("a photo of a {}.", "{}", "the {} on a table", "", "no place")
HEADERS = (
    {},
    {"idempotency-key": "again"},
    {"unsee-acknowledge": "again"},
    {"x-http-method-override": "PUT", "x-original-url": "/v1/confidences"},
    {"x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1", "forwarded": "for=127.0.0.1"},
    {"content-type": "text/plain"},
    {"unsee-prompt": "none", "prompt": "none"},
)


class Requests:
    """Requests drawn by a seed, each with what a right answer must be."""

    def __init__(self, seed, model, pictures, images) -> None:
        self._draw = random.Random(seed)
        self._model, self._pictures, self._images = model, pictures, images
        self._right = [expected(model, picture) for picture in pictures]

    def classify(self, who):
        """Method, path, what is sent, and a check of an answer's rows."""
        draw, row = self._draw, self._draw.randrange(len(self._pictures))
        labels = None if draw.random() < 0.3 else self._labels(who)
        parameters = {} if labels is None else {"candidate_labels": list(labels)}
        if draw.random() < 0.2:
            parameters["prompt"] = draw.choice(("pets", "other", "none", "", "../pets", "pets ", "mine"))
        if draw.random() < 0.15:
            parameters["hypothesis_template"] = draw.choice(TEMPLATES)
        if draw.random() < 0.1:
            parameters[draw.choice(("serve", "rule", "labels", "contexts", "template", "top"))] = "as-is"
        body = json.dumps(asked(self._pictures[row], **parameters), ensure_ascii=draw.random() < 0.5)
        if draw.random() < 0.1:
            body = body[:-1] + ', "parameters": {"candidate_labels": ["cat", "dog"]}}'  # a key given twice
            labels = {"cat": "cat", "dog": "dog"}
        sent = {"content": body.encode(), "headers": self._headers()}
        return "POST", "/v1/classify", sent, lambda rows: self._check(who, rows, labels, row)

    def anything(self):
        draw = self._draw
        name, images = draw.choice(("pets", "none", "mine")), draw.choice((self._images, "0" * 64))
        paths = ["/v1/confidences", "/v1/images", f"/v1/images/{images}", "/v1/prompts", f"/v1/prompts/{name}"]
        paths += ["/metrics", "/v1/classify/", "//v1/classify", "/v1/../v1/confidences", "/v1/confidences?prompt=pets"]
        facts = {"images": images, "class_names": json.dumps(draw.choice((NAMES, FORGET, ("cat", "dog"))))}
        if draw.random() < 0.3:
            facts["template"] = draw.choice(TEMPLATES)
        contents = [
            pack({"contexts": CONTEXTS[None]}, facts),
            pack({}, facts),
            message(self._model, serve=None),
            json.dumps(asked(self._pictures[0])).encode(),
            json.dumps({"images": [images]}).encode(),
            b"",
        ]
        sent = {"content": draw.choice(contents), "headers": self._headers()}
        return draw.choice(METHODS), draw.choice([*paths, *sorted(OPEN)]), sent, None

    def _headers(self):
        found = dict(self._draw.choice(HEADERS))
        if "idempotency-key" in found:
            found["idempotency-key"] += str(self._draw.randrange(5))
        return found

    def _labels(self, who):
        """Labels as they are written -> the class that each of them is."""
        names = [*NAMES, *(OUTSIDE if self._draw.random() < (0.2 if who == "consumer" else 0.6) else ())]
        chosen = self._draw.sample(names, self._draw.randint(1, min(6, len(names))))
        return {spell(name, self._draw.choice([*SPELLINGS, "as it is", "as it is"])): name for name in chosen}

    def _check(self, who, rows, labels, row):
        found = {one["label"]: one["score"] for one in rows}
        if labels is None:
            right = self._right[row]
        elif who == "consumer":
            assert set(labels.values()) <= set(NAMES)
            right = {label: self._right[row][name] for label, name in labels.items()}
        else:
            forgotten = [label for label, name in labels.items() if name in FORGET]
            right = expected(self._model, self._pictures[row], list(labels), forgotten)
            assert all(found[label] == 0 for label in forgotten)
        assert found == pytest.approx(right, abs=1e-5)


def send_many(ask, requests: Requests, count: int) -> dict[int, int]:
    """Sends requests and checks every answer; -> how many had which status."""
    statuses: dict[int, int] = {}
    draw = random.Random(count)
    for _ in range(count):
        who = draw.choice(("consumer", "chooser"))
        method, path, sent, check = requests.classify(who) if draw.random() < 0.75 else requests.anything()
        response = ask(method, path, who, **sent)
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
        assert response.status_code < 500, response.text
        if response.status_code < 400 and check is not None:
            check(response.json())
        elif response.status_code < 400:
            assert path in OPEN or method == "OPTIONS", (method, path, sent)
            assert b"contexts\x00" not in response.content
            assert '"token_mean": [' not in response.text
    return statuses


@pytest.fixture
def requests(remote, model, data, ask):
    """Requests of a client who also knows an image set of somebody else."""
    for name in ("pets", "other"):
        ask("PUT", f"/v1/prompts/{name}", "operator", content=message(model))
    images = remote.bind(data.test.subset(range(3)), data.class_names)._facts["images"]
    pictures = [image_file(data.test, row) for row in (0, 13, 20)]
    return lambda seed: Requests(seed, model, pictures, images)


def test_no_answer_leaves_outside_the_prompt_and_its_rule(ask, requests):
    statuses = send_many(ask, requests(0), 300)
    assert statuses[200] > 60
    assert min(statuses[403], statuses[422]) > 20


@pytest.mark.slow
def test_no_answer_of_ten_thousand_leaves_outside_the_prompt_and_its_rule(ask, requests):
    assert send_many(ask, requests(1), 10_000)[200] > 2000


def test_an_answer_under_another_prompt_or_without_its_rule_is_noticed(ask, requests, model):
    drawn = requests(0)
    for other in (pack({"contexts": -CONTEXTS}, {"card": card(model)}), message(model, serve=None)):
        ask("PUT", "/v1/prompts/pets", "operator", content=other)
        with pytest.raises(AssertionError):
            send_many(ask, drawn, 60)
    ask("PUT", "/v1/prompts/pets", "operator", content=message(model))
