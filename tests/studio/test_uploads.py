"""Uploads cannot write outside their place, fill the disk or the memory, or speak for the page."""

from __future__ import annotations

import io
import stat
import struct
import zipfile

import pytest

from tests.studio.conftest import SCRIPT_CLASS
from unsee.studio.uploads import MOST_EACH


def pack(files, links=()):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        for name in links:
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, "/etc")
    return out.getvalue()


def with_size(archive, size):
    """The same archive, which says of its file that it has this many bytes."""
    content = bytearray(archive)
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = content.index(mark) + place
        content[at : at + 4] = struct.pack("<I", size)
    return bytes(content)


@pytest.fixture
def send(page):
    def call(content, title="photos.zip"):
        json = {"accept": "application/json"}
        return page.post("/upload", params={"kind": "zip", "title": title}, content=content, headers=json)

    return call


@pytest.fixture
def image(photo):
    return photo.read_bytes()


def left_behind(root):
    return [path for path in (root / ".studio" / "images").rglob("*") if path.is_file()]


def test_a_zip_of_class_folders_becomes_data(send, page, image):
    files = {f"set/{name}/{i}.png": image for name in ("cat", SCRIPT_CLASS) for i in range(4)} | {"set/notes.txt": b"x"}
    answer = send(pack(files))
    assert answer.status_code == 200, answer.text
    shown = page.get("/new", params={"data": answer.json()["data"]})
    assert shown.status_code == 200
    assert shown.text.count('name="forget"') == 2
    assert "&lt;script&gt;" in shown.text
    assert "<script>alert" not in shown.text


@pytest.mark.parametrize("name", ["../../x/a.png", "/etc/a.png", "cat/../../a.png", "..\\..\\x\\a.png", "C:/x/a.png"])
def test_a_name_that_leads_out_is_refused(send, root, image, name):
    answer = send(pack({"cat/1.png": image, name: image}))
    assert answer.status_code == 400
    assert "leads out" in answer.json()["error"]
    assert left_behind(root) == []
    assert not (root.parent / "x").exists()


def test_a_link_is_refused(send, root, image):
    answer = send(pack({"cat/1.png": image}, links=["dog"]))
    assert answer.status_code == 400
    assert "link" in answer.json()["error"]
    assert left_behind(root) == []


def test_a_bomb_is_refused_before_it_is_unpacked(send, root):
    answer = send(with_size(pack({"cat/1.png": bytes(100_000)}), 300 * 2**20))
    assert answer.status_code == 400
    assert "300 MB" in answer.json()["error"]
    assert left_behind(root) == []


def test_a_bomb_that_lies_about_its_size_is_refused(send, root):
    answer = send(with_size(pack({"cat/1.png": bytes(100_000)}), 1000))
    assert answer.status_code == 400
    assert "cannot be unpacked" in answer.json()["error"]
    assert left_behind(root) == []


def test_an_image_that_is_too_large_is_refused(send, root, image):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("cat/1.png", image)
        archive.writestr("dog/1.png", image + bytes(MOST_EACH))
    answer = send(out.getvalue())
    assert answer.status_code == 400
    assert "'dog/1.png' is larger than the 64 MB allowed" in answer.json()["error"]
    assert left_behind(root) == []


def test_an_image_of_too_many_pixels_is_refused_with_what_to_do(send, root, large_photo):
    answer = send(pack({"cat/1.png": large_photo.read_bytes()}))
    assert answer.status_code == 400
    assert "million pixels" in answer.json()["error"]
    assert "Remove it" in answer.json()["error"]
    assert left_behind(root) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"this is no zip", "cannot be unpacked"),
        (pack({"readme.txt": b"hello"}), "holds no images"),
        (pack({"cat/1.png": b"this is text"}), "not an image"),
        (pack({}), "holds no images"),
    ],
)
def test_what_is_no_zip_of_images_is_refused_in_words(send, root, content, words):
    answer = send(content)
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert left_behind(root) == []


def test_all_images_that_cannot_be_read_are_named_at_once(send, page, root, image):
    sent = {f"cat/{i}.png": image for i in range(3)} | {"cat/note.png": b"this is text", "dog/empty.png": b""}
    names = list(sent)
    files = [("file", ("image", content, "image/png")) for content in sent.values()]
    part = {"params": {"title": "pets", "to": ""}, "data": {"name": names}, "files": files}
    for answer in (send(pack(sent)), page.post("/upload", headers={"accept": "application/json"}, **part)):
        assert answer.status_code == 400
        assert "cat/note.png" in answer.json()["error"]
        assert "(also: dog/empty.png). Remove them" in answer.json()["error"]
        assert left_behind(root) == []


def test_files_of_a_folder_become_data_in_several_parts(page, image):
    json = {"accept": "application/json"}

    def part(to, names):
        files = [("file", ("image", image, "image/png")) for _ in names]
        return page.post("/upload", params={"title": "pets", "to": to}, data={"name": names}, files=files, headers=json)

    first = part("", [f"pets/cat/{i}.png" for i in range(4)]).json()
    second = part(first["to"], [f"pets/dog/{i}.png" for i in range(4)]).json()
    assert second == first
    assert page.get("/new", params={"data": first["data"]}).text.count('name="forget"') == 2
    assert part("../../x", ["a/1.png"]).status_code == 400
    assert part("", ["../x/1.png"]).status_code == 400


def test_two_folders_of_one_class_name_are_named(send, page, image):
    files = {f"{name}/{i}.png": image for name in ("grey cat", "grey_cat", "dog") for i in range(4)}
    shown = page.get("/new", params={"data": send(pack(files)).json()["data"]})
    assert shown.status_code == 400
    assert "stands for two classes" in shown.text


def test_the_title_of_a_zip_is_no_path(send, root, image):
    answer = send(pack({"cat/1.png": image, "dog/1.png": image}), "../../../<b>.zip")
    assert answer.status_code == 200
    assert (root / ".studio" / "images" / answer.json()["to"]).is_dir()
    assert "/" not in answer.json()["to"]
    assert "<" not in answer.json()["to"]
