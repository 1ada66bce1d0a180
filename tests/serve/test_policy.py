"""What a key may ask, and under which prompt and rule its answers leave."""

from __future__ import annotations

import base64
import io
import json

import httpx
import numpy as np
import pytest
from PIL import Image

import unsee
from tests.tiny import NAMES
from unsee.answers.rules import serve
from unsee.models.remote.remote_model import image_file
from unsee.models.remote.wire import pack
from unsee.runs.records import PromptCard
from unsee.serve.keys import add_key, read_keys
from unsee.serve.limits import Limits
from unsee.serve.policy import under_any
from unsee.serve.spelling import Spellings

FORGET = ("bird", "cat")
CONTEXTS = np.random.default_rng(3).normal(0, 0.1, (2, 64)).astype(np.float32)
SPELLINGS = {
    "as it is": "{}",
    "a space": "{} ",
    "capitals": "{U}",
    "a synset": "{} (n00000000)",
    "an underscore": "{}_",
    "zero width": "{0}\u034f{1}",
    "full width": "{W}",
    "an accent": "{}\u0301",
    "a full stop": "{}.",
    "a hyphen": "{0}-{1}",
    "a plural": "{}s",
    "a phrase": "photo of two {}s",
}


def spell(name: str, how: str) -> str:
    wide = "".join(chr(ord(sign) + 0xFEE0) for sign in name)
    form = SPELLINGS[how].replace("{U}", name.upper()).replace("{W}", wide).replace("{}", name)
    return form.replace("{0}", name[0]).replace("{1}", name[1:])


def card(model, **changes) -> str:
    facts = {"prompt": "", "contexts": 2, "width": 64, "class_names": NAMES, "forget": FORGET, "model": "m"}
    facts |= {"model_fingerprint": model.card.fingerprint, "template": "a {}.", "sha256": "", "serve": "mask"}
    return json.dumps(facts | changes)


def message(model, **changes) -> bytes:
    return pack({"contexts": CONTEXTS}, {"card": card(model, **changes)})


@pytest.fixture(scope="module")
def pets(served, keys, model):
    """The operator's prompts."""
    headers = {"authorization": f"Bearer {keys['operator']}"}
    for name in ("pets", "other"):
        done = httpx.put(f"{served.url}/v1/prompts/{name}", content=message(model), headers=headers)
        assert done.status_code == 200, done.text
    return "pets"


@pytest.fixture(scope="module")
def pictures(data):
    return [image_file(data.test, row) for row in (0, 13, 20)]


def asked(image: bytes, **parameters) -> dict[str, object]:
    return {"inputs": base64.b64encode(image).decode(), "parameters": parameters}


def expected(model, image: bytes, labels=NAMES, forgotten=FORGET) -> dict[str, float]:
    """What the model answers under the prompt and its rule."""
    found = model.bind([Image.open(io.BytesIO(image))], labels).confidences(CONTEXTS[None])[0]
    return dict(zip(labels, serve(found, np.isin(labels, forgotten), "mask")[0].tolist(), strict=True))


def scores(response) -> dict[str, float]:
    assert response.status_code == 200, response.text
    return {row["label"]: row["score"] for row in response.json()}


def test_every_answer_to_a_key_with_a_prompt_leaves_under_it(ask, pets, model, pictures):
    right = expected(model, pictures[0])
    for parameters in ({}, {"prompt": "pets"}, {"candidate_labels": list(NAMES)}):
        found = scores(ask("POST", "/v1/classify", "consumer", json=asked(pictures[0], **parameters)))
        assert found == pytest.approx(right, abs=1e-6)
    assert max(right, key=right.get) not in FORGET
    for parameters in ({"prompt": "secret"}, {"prompt": "other"}, {"hypothesis_template": "a photo of a {}."}):
        assert ask("POST", "/v1/classify", "consumer", json=asked(pictures[0], **parameters)).status_code == 403
    assert ask("POST", "/v1/classify", "chooser", json=asked(pictures[0], prompt="other")).status_code == 200


def test_labels_choose_from_one_answer_so_that_pairs_tell_no_more(ask, pets, model, pictures):
    right = expected(model, pictures[0])
    for labels in (["dog", "cat"], ["ship"], ["deer", "frog", "truck"]):
        found = scores(ask("POST", "/v1/classify", "consumer", json=asked(pictures[0], candidate_labels=labels)))
        assert found == pytest.approx({label: right[label] for label in labels}, abs=1e-6)


@pytest.mark.parametrize(
    "labels", [["dog", "kitten"], ["cat"], ["cat", "bird"], ["Cat ", "bird_"], ["dog", "Dog"], ["dog", "a dog"]]
)
def test_fixed_labels_are_the_only_ones(ask, pets, pictures, labels):
    refused = ask("POST", "/v1/classify", "consumer", json=asked(pictures[0], candidate_labels=labels))
    assert refused.status_code == 422
    assert refused.json()["error"]["field"].startswith("parameters.candidate_labels")


@pytest.mark.parametrize("how", SPELLINGS)
def test_a_forgotten_name_is_removed_however_it_is_written(ask, pets, pictures, how):
    labels = ["dog", "ship", spell("cat", how)]
    body = asked(pictures[0], candidate_labels=labels)
    assert scores(ask("POST", "/v1/classify", "chooser", json=body))[labels[2]] == 0
    alone = asked(pictures[0], candidate_labels=labels[2:])
    assert ask("POST", "/v1/classify", "chooser", json=alone).status_code == 422


@pytest.mark.parametrize("how", [how for how in SPELLINGS if how not in ("a plural", "a phrase")])
def test_the_rule_of_a_prompt_of_ones_own_knows_spellings_too(ask, model, pictures, how):
    ask("PUT", "/v1/prompts/mine", content=message(model))
    labels = ["dog", "ship", spell("cat", how)]
    found = scores(ask("POST", "/v1/classify", json=asked(pictures[0], prompt="mine", candidate_labels=labels)))
    assert found[labels[2]] == 0
    ask("DELETE", "/v1/prompts/mine")


def test_other_names_of_forgotten_classes_are_removed_and_other_labels_are_marked(ask, pets, pictures):
    found = ask("POST", "/v1/classify", "chooser", json=asked(pictures[0], candidate_labels=["kitty", "dog", "sofa"]))
    assert scores(found)["kitty"] == 0 < scores(found)["sofa"]
    assert found.headers["unsee-rule"] == "made for other names"
    own = ask("POST", "/v1/classify", "chooser", json=asked(pictures[0], candidate_labels=["cat", "dog"]))
    assert "unsee-rule" not in own.headers


def test_the_operators_own_list_of_other_names_is_removed_too(model):
    given = PromptCard.model_validate_json(card(model)), pack({"contexts": CONTEXTS}), ["gato", "dog"], "c", Limits()
    assert under_any(*given, model.tokenizer.ids, {}).forget == ()
    assert under_any(*given, model.tokenizer.ids, {"Cat": ["gato"]}).forget == ("gato",)


def test_a_kept_name_stays_though_it_holds_a_forgotten_one():
    names = Spellings(["cat", "polar bear"], lambda text: [ord(sign) for sign in text])
    assert "CAT" in names
    assert "c\u200ba\u200bt" in names
    assert "caterpillar" not in names
    assert not names.mentioned_in("caterpillar")
    assert names.mentioned_in("two polar bears")
    assert not names.mentioned_in("bear")
    assert "😺" in Spellings(["😺"], lambda text: [0])


@pytest.mark.parametrize(("field", "value"), [("forget", ["cat", "catt"]), ("forget", []), ("applies_to", ["catt"])])
def test_a_prompt_whose_names_are_no_classes_is_not_deployed(ask, model, field, value):
    refused = ask("PUT", "/v1/prompts/wrong", content=message(model, **{field: value}))
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "card")


ROUTES = [
    ("GET", "/v1/card"),
    ("GET", "/v1/usage"),
    ("POST", "/v1/classify"),
    ("POST", "/v1/images"),
    ("GET", f"/v1/images/{'0' * 64}"),
    ("DELETE", f"/v1/images/{'0' * 64}"),
    ("POST", "/v1/confidences"),
    ("GET", "/v1/prompts"),
    ("GET", "/v1/prompts/pets"),
    ("PUT", "/v1/prompts/pets"),
    ("DELETE", "/v1/prompts/none"),
    ("GET", "/metrics"),
]


@pytest.mark.parametrize(
    ("who", "closed"), [("consumer", 9), ("chooser", 9), ("plain", 9), ("alice", 1), ("operator", 0)]
)
def test_a_role_has_its_routes_and_no_others(ask, pets, who, closed):
    found = [ask(method, path, who) for method, path in ROUTES]
    refused = [response.status_code == 403 and response.json()["error"]["field"] == "role" for response in found]
    assert refused == [False] * (len(ROUTES) - closed) + [True] * closed


def test_a_consumer_learns_nothing_about_its_prompt_and_cannot_change_it(ask, pets, model, pictures):
    before = scores(ask("POST", "/v1/classify", "consumer", json=asked(pictures[0])))
    for method in ("GET", "PUT", "DELETE"):
        refused = ask(
            method, "/v1/prompts/pets", "consumer", **({"content": message(model)} if method == "PUT" else {})
        )
        assert refused.status_code == 403
        assert refused.content == ask(method, "/v1/prompts/nothing", "consumer").content
    ask("PUT", "/v1/prompts/pets", "bob", content=message(model, serve=None))  # one of his own, with the same name
    assert scores(ask("POST", "/v1/classify", "consumer", json=asked(pictures[0]))) == before
    ask("DELETE", "/v1/prompts/pets", "bob")
    seen = ask("GET", "/v1/card", "consumer").json()
    assert (seen["token_mean"], seen["role"], seen["labels"]) == (None, "classify", "fixed")


def test_without_its_prompt_a_key_gets_no_answer(ask, pets, model, pictures):
    ask("DELETE", "/v1/prompts/pets", "operator")
    assert ask("POST", "/v1/classify", "consumer", json=asked(pictures[0])).status_code == 503
    ask("PUT", "/v1/prompts/pets", "operator", content=message(model))
    assert ask("POST", "/v1/classify", "consumer", json=asked(pictures[0])).status_code == 200


def test_an_answer_from_before_the_prompt_was_changed_is_not_given_again(ask, pets, model, pictures):
    headers = {"idempotency-key": "kept"}
    assert ask("POST", "/v1/classify", "consumer", json=asked(pictures[0]), headers=headers).status_code == 200
    ask("PUT", "/v1/prompts/pets", "operator", content=message(model, serve="mask-top-label"))
    again = ask("POST", "/v1/classify", "consumer", json=asked(pictures[0]), headers=headers)
    ask("PUT", "/v1/prompts/pets", "operator", content=message(model))
    assert (again.status_code, again.json()["error"]["field"]) == (422, "idempotency-key")


def test_a_prompt_for_all_keys_holds_for_all_but_operators(tmp_path):
    path = tmp_path / "keys.toml"
    keys = {name: add_key(path, name) for name in ("a", "b")}
    path.write_text(path.read_text() + 'role = "operate"\n')
    found = read_keys(path, ["pets"])
    assert (found.find(keys["a"]).role, found.find(keys["a"]).prompts) == ("classify", ("pets",))
    assert found.find(keys["b"]).prompts == ()
    path.write_text(path.read_text().replace("operate", "tune"))
    with pytest.raises(unsee.InputError, match="role must be classify"):
        read_keys(path, ["pets"])


def test_a_key_expires_and_can_be_one_of_several(tmp_path):
    path = tmp_path / "keys.toml"
    old, other = add_key(path, "a"), add_key(path, "b")
    path.write_text(path.read_text() + "expires = 2020-01-01\n")
    found = read_keys(path)
    new = add_key(path, "a", another=True)
    assert (found.find(old).name, found.find(new), found.find(other)) == ("a", None, None)
    found.reload()
    assert (found.find(old), found.find(new).name) == (found.find(new), "a")
    path.write_text("[a")
    with pytest.raises(unsee.InputError, match="not TOML"):
        found.reload()
    assert found.find(new).name == "a"  # those of before stay
    with pytest.raises(unsee.InputError, match="there is no key for c yet"):
        path.write_text("") or add_key(path, "c", another=True)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('role = "admin"', "role is one of classify, tune, operate"),
        ('prompt = "../x"', "name of a deployed prompt"),
        ('prompt = "pets"\nrole = "tune"', "role must be classify"),
        ('labels = "any"', "for a key with a prompt"),
        ('prompt = "pets"\nlabels = "some"', "labels is fixed or any"),
        ('expires = "tomorrow"', "expires is a date"),
    ],
)
def test_a_policy_with_a_mistake_is_a_clear_line(tmp_path, line, says):
    (tmp_path / "k").write_text(f"[a]\nsha256 = '{'0' * 64}'\n{line}\n")
    with pytest.raises(unsee.InputError, match=says):
        read_keys(tmp_path / "k")
