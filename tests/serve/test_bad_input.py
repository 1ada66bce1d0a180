"""Whatever is sent, nothing breaks: no 5xx, no crash, and every refusal is JSON that names the field."""

from __future__ import annotations

import base64
import io
import json
import socket
import zlib
from collections import Counter

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from PIL import Image, features

from unsee.models.remote.remote_model import RemoteModel, image_file
from unsee.models.remote.wire import MEDIA, pack

WIDTH = 64
relaxed = settings(
    deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=False
)


def check(response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        error = json.loads(response.content)["error"]
        assert error["field"], error
        assert error["message"], error


def send_from_document(served, key: str, examples: int) -> int:
    """Sends requests made from the OpenAPI document, so many to each of its operations; -> how many operations."""
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:

        def send(case) -> None:
            check(case.call(headers={"authorization": f"Bearer {key}"}))

        settings(relaxed, max_examples=examples)(given(operation.as_strategy())(send))()
    return len(operations)


def test_no_request_made_from_the_openapi_document_breaks_the_service(served, keys):
    assert send_from_document(served, keys["fuzz"], 3) >= 14


@pytest.mark.slow
def test_no_request_of_many_made_from_the_openapi_document_breaks_the_service(served, keys):
    assert send_from_document(served, keys["fuzz"], 400) >= 14


# Binary bodies: whole messages with one thing wrong, and damaged bytes.

texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "null", "[]", "{}", '["a","a"]', "[1]", "[" * 2000, '["\\ud800"]', "../..", "\x00", "1e999"]),
)
numbers = st.sampled_from([0.0, 0.01, -1.0, float("nan"), float("inf"), 1e38, 1e-45])
shapes = st.one_of(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.sampled_from([WIDTH, 0, 1, WIDTH + 1])),
    st.lists(st.integers(0, 3), max_size=4).map(tuple),
)
dtypes = st.sampled_from(["float32", "float32", "float32", "int32", "float64", "int8"])


@st.composite
def arrays(draw):
    return np.full(draw(shapes), draw(numbers)).astype(draw(dtypes))


# Made once: to make a strategy takes longer than to draw from it.
some_arrays = st.dictionaries(st.sampled_from(["contexts", "contexts", "top"]), arrays(), max_size=2)
more_facts = st.dictionaries(st.sampled_from(["template", "applies_to", "form", "extra"]), texts, max_size=2)
headers = st.one_of(texts, st.sampled_from(['{"__metadata__":3}', '{"a":{"dtype":[]}}']))
few_bytes, some_bytes = st.binary(min_size=1, max_size=9), st.binary(max_size=200)
places = st.integers(0, 2**16)
WRONG = (
    "nothing",
    "nothing",
    "fact",
    "missing",
    "more",
    "arrays",
    "arrays",
    "all",
    "short",
    "changed",
    "bytes",
    "head",
)
wrongs = st.sampled_from(WRONG)


def bodies(facts, *shape):
    """Messages that are right, wrong in one of their parts or in many, or damaged."""
    each = st.sampled_from(sorted(facts))
    right = st.integers(1, 3).map(lambda i: {"contexts": np.full(shape, 0.01 * i, np.float32)})

    @st.composite
    def made(draw):
        wrong, chosen, given_arrays = draw(wrongs), dict(facts), draw(right)
        if wrong in ("fact", "all"):
            chosen[draw(each)] = draw(texts)
        if wrong == "missing":
            del chosen[draw(each)]
        if wrong in ("more", "all"):
            chosen |= draw(more_facts)
        if wrong in ("arrays", "all"):
            with np.errstate(invalid="ignore"):
                given_arrays = draw(some_arrays)
        try:
            body = pack(given_arrays, chosen)
        except Exception:  # what safetensors itself does not write
            body = b""
        if wrong == "short":
            body = body[: draw(places) % (len(body) + 1)]
        elif wrong == "changed":
            at = draw(places) % max(1, len(body))
            body = body[:at] + draw(few_bytes) + body[at + 1 :]
        elif wrong == "bytes":
            body = draw(some_bytes)
        elif wrong == "head":
            header = draw(headers).encode("utf-8", "replace")
            body = len(header).to_bytes(8, "little") + header
        return body

    return made()


names = st.one_of(
    st.just("p"),
    st.sampled_from(["..", "../p", "%2e%2e%2fp", "a%00b", "a" * 65, ".hidden", "-x", "ü", "a/b", "a?b", "a#b"]),
    st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=1, max_size=8),
)


@pytest.fixture(scope="session")
def fuzz(served, keys, data):
    """Sends one generated request to one of the binary routes."""
    client = httpx.Client(base_url=served.url, headers={"authorization": f"Bearer {keys['fuzz']}"})
    with RemoteModel(served.url, keys["fuzz"]) as model:
        images = model.bind(data.test.subset(range(3)), data.class_names)._facts["images"]
        card = {"prompt": "", "contexts": 2, "width": WIDTH, "class_names": ["cat"], "forget": ["cat"], "model": ""}
        card |= {"model_fingerprint": model.card.fingerprint, "template": "a {}.", "sha256": ""}
    asked = {"images": images, "class_names": json.dumps(["cat", "dog"])}
    files = [image_file(data.test, row) for row in range(3)]

    routes = st.sampled_from(["confidences", "confidences", "prompts", "images", "classify"])
    messages, prompts = bodies(asked, 2, 2, WIDTH), bodies({"card": json.dumps(card)}, 2, WIDTH)
    same = st.sampled_from([None, None, "k1", "k 2", "", "k" * 200])
    contents = st.one_of(st.sampled_from(files), st.sampled_from(files), st.binary(max_size=60), damaged(files))
    labels = st.one_of(st.just(["cat", "dog"]), st.just(["cat", "dog"]), st.lists(texts, max_size=3))
    named = st.one_of(
        st.just({}), st.dictionaries(st.sampled_from(["hypothesis_template", "prompt"]), texts, max_size=2)
    )
    coded = st.one_of(st.just(None), st.just(None), texts)  # in place of the file itself
    listed = st.lists(st.one_of(texts, st.just(images)), max_size=3)
    fields = st.sampled_from(["images", "images", "images", "other"])
    file_names = st.sampled_from(["a.png", "../../etc/passwd", "", "a\x00b", "x" * 300])
    as_hashes = st.booleans()

    @st.composite
    def requests(draw):
        route = draw(routes)
        if route == "confidences":
            key = draw(same)
            headers = {"content-type": MEDIA} | ({} if key is None else {"idempotency-key": key})
            return "POST", "/v1/confidences", {"content": draw(messages), "headers": headers}
        if route == "prompts":
            return "PUT", f"/v1/prompts/{draw(names)}", {"content": draw(prompts)}
        if route == "classify":
            content, text = draw(contents), draw(coded)
            inputs = base64.b64encode(content).decode() if text is None else text
            body = {"inputs": inputs, "parameters": {"candidate_labels": draw(labels), **draw(named)}}
            return "POST", "/v1/classify", {"content": json.dumps(body).encode("utf-8", "replace")}
        if draw(as_hashes):
            return "POST", "/v1/images", {"content": json.dumps({"images": draw(listed)}).encode()}
        return "POST", "/v1/images", {"files": [(draw(fields), (draw(file_names), draw(contents)))]}

    def send(request) -> tuple[str, int]:
        """-> the route, and the status."""
        method, path, options = request
        response = client.request(method, path, **options)
        check(response)
        return path.split("/")[2], response.status_code

    yield requests, send
    check(client.get("/v1/usage"))
    assert client.get("/healthz").status_code == 200
    client.close()


@st.composite
def damaged(draw, files):
    content = files[draw(places) % len(files)]
    at = draw(places) % len(content)
    return content[:at] + draw(few_bytes)[:4] + content[at + draw(places) % 41 :]


def send_generated(fuzz, count: int, number: int) -> Counter[tuple[str, int]]:
    """Sends so many generated requests; -> how many of each route had which status."""
    requests, send = fuzz
    found = Counter[tuple[str, int]]()
    drawn = given(requests())(lambda request: found.update([send(request)]))
    settings(relaxed, max_examples=count)(seed(number)(drawn))()
    return found


def test_no_generated_body_breaks_a_binary_route(fuzz):
    found = send_generated(fuzz, 200, 0)
    assert found.total() >= 200
    assert {route for route, status in found if status == 200} == {"confidences", "prompts", "images", "classify"}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 11))
def test_no_generated_body_of_twenty_thousand_breaks_a_binary_route(fuzz, number):
    """2,000 at a time: what was drawn before makes each further draw slower."""
    found = send_generated(fuzz, 2000, number)
    assert found.total() >= 2000
    for route in ("confidences", "prompts", "images", "classify"):  # some are right, and reach the model
        assert found[route, 200] >= 5
        assert found[route, 422] >= 50


# What people really send.


def refusal(response, status=422):
    assert response.status_code == status, response.text
    check(response)
    return response.json()["error"]["field"], response.json()["error"]["message"]


def bomb(side: int) -> bytes:
    """A small PNG that unpacks to side x side pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        crc = zlib.crc32(kind + content).to_bytes(4, "big")
        return len(content).to_bytes(4, "big") + kind + content + crc

    head = side.to_bytes(4, "big") * 2 + bytes([1, 0, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def classify(ask, content: bytes, **parameters):
    body = {"inputs": base64.b64encode(content).decode(), "parameters": {"candidate_labels": ["cat", "dog"]}}
    body["parameters"] |= parameters
    return ask("POST", "/v1/classify", json=body)


@pytest.mark.parametrize("side", [6000, 60_000, 2**31 - 1])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(ask, side):
    assert refusal(classify(ask, bomb(side)))[0] == "inputs"
    response = ask("POST", "/v1/images", files=[("images", ("a.png", bomb(side)))])
    assert refusal(response)[0] == "images[0]"


def test_a_file_that_is_two_formats_at_once_is_what_its_decoder_says(ask):
    out = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(out, "PNG")
    assert classify(ask, out.getvalue() + b"PK\x03\x04<html><script>").status_code == 200  # a PNG, and text after it
    for start in (b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"\x00\x00\x00\x0cjP  "):
        assert refusal(classify(ask, start + out.getvalue()))[0] == "inputs"


def test_the_service_decodes_what_the_command_line_decodes(ask):
    if not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    out = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(out, "AVIF")
    assert classify(ask, out.getvalue()).status_code == 200
    assert refusal(classify(ask, out.getvalue()[:60]))[0] == "inputs"
    said = refusal(classify(ask, b"text"))[1]
    assert said == "not an image this machine can decode; known are JPEG, PNG, WEBP, GIF, BMP, TIFF, PPM"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "I", "I;16", "F"])
def test_every_mode_of_image_is_classified_or_refused(ask, mode):
    out = io.BytesIO()
    try:
        Image.new(mode, (5, 3)).save(out, "TIFF")
    except (OSError, KeyError):
        pytest.skip("TIFF has no such mode")
    check(classify(ask, out.getvalue()))


@pytest.mark.parametrize(
    ("contexts", "says"),
    [
        (np.full((1, 2, WIDTH), np.nan, np.float32), "finite"),
        (np.full((1, 2, WIDTH), np.inf, np.float32), "finite"),
        (np.full((1, 2, WIDTH), 3e5, np.float32), "long"),
        (np.zeros((1, 2, WIDTH), np.int32), "float32"),
        (np.zeros((2, WIDTH), np.float32), "float32"),
        (np.zeros((1, 2, 5), np.float32), "wide"),
        (np.zeros((1, 76, WIDTH), np.float32), "tokens"),
        (np.zeros((257, 1, WIDTH), np.float32), "candidates"),
        (np.zeros((1, 0, WIDTH), np.float32), "none of them 0"),
    ],
)
def test_contexts_that_cannot_be_are_refused(remote, ask, data, contexts, says):
    facts = remote.bind(data.test.subset(range(2)), data.class_names)._facts
    field, message = refusal(ask("POST", "/v1/confidences", content=pack({"contexts": contexts}, facts)))
    assert field == "contexts"
    assert says in message


@pytest.mark.parametrize(
    ("labels", "field"),
    [
        ([], "parameters.candidate_labels"),
        (["cat", "cat"], "parameters.candidate_labels"),
        (["cat", ""], "parameters.candidate_labels[1]"),
        (["cat", "x" * 201], "parameters.candidate_labels[1]"),
        (["cat", "a\x00b"], "parameters.candidate_labels[1]"),
        ([f"n{i}" for i in range(2001)], "parameters.candidate_labels"),
        (["ж7" * 100], "class_names"),  # short enough, but too many tokens
    ],
)
def test_names_that_cannot_be_are_refused(ask, data, labels, field):
    assert refusal(classify(ask, image_file(data.test, 0), candidate_labels=labels))[0] == field


@pytest.mark.parametrize("name", ["..", ".hidden", "%2e%2e", "a%00b", "a" * 65, "%2Fetc%2Fpasswd", "a%5Cb", "ü"])
def test_the_name_of_a_prompt_is_no_path(ask, name):
    for method in ("GET", "DELETE", "PUT"):
        assert ask(method, f"/v1/prompts/{name}").status_code in (404, 405, 422)


def test_a_body_that_is_too_large_is_refused_while_it_arrives(ask, served, keys):
    def endless():
        while True:
            yield bytes(2**20)

    with socket.create_connection(("127.0.0.1", served.port), 10) as raw:
        head = f"POST /v1/images HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {keys['alice']}\r\n"
        raw.sendall(f"{head}content-length: {2**40}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413")  # at once, without waiting for a byte of it
    try:
        response = ask("POST", "/v1/images", content=endless(), headers={"content-type": "application/json"})
        assert refusal(response, 413)[0] == "body"
    except httpx.WriteError:
        pass  # the server hung up on us; the next request shows that it is well
    assert ask("GET", "/v1/usage").status_code == 200
