"""A folder of one's own: however its path is pasted, and with images that cannot be read."""

from __future__ import annotations

import shutil
from urllib.parse import quote

import pytest

from unsee.runs.lock import FolderLock
from unsee.studio.jobs import Queue

REASON = "error: cannot read image pets/1.png: the file is empty; --skip-bad-images leaves such images out\n"


@pytest.fixture
def broken(photos, tmp_path):
    """The photos, one of them cut short, as a copy that broke off leaves it."""
    folder = shutil.copytree(photos, tmp_path / "broken")
    first = min((folder / "train" / "dog").iterdir())
    first.write_bytes(first.read_bytes()[:60])
    return folder


@pytest.mark.parametrize("pasted", ["{}", " {}/ ", "'{}'", '"{}"', "file://{}"])
def test_a_folder_is_found_as_its_path_was_copied(page, photos, tmp_path, pasted):
    folder = shutil.copytree(photos, tmp_path / "my photos ü")
    path = quote(str(folder)) if pasted.startswith("file") else str(folder)
    shown = page.get("/new", params={"folder": pasted.format(path), "data": "demo"})
    assert shown.status_code == 200
    assert shown.text.count('name="forget"') == 4
    assert f'<input type="hidden" name="data" value="{folder}">' in shown.text


def test_what_the_model_knows_is_said_of_the_images_that_can_be_read(page, broken, photos, model_folder):
    whole, found = (
        page.get("/known", params={"data": str(folder), "model": str(model_folder)}).json()
        for folder in (photos, broken)
    )
    seen = {name: count for name, (_, count) in whole["known"].items()}
    assert {name: count for name, (_, count) in found["known"].items()} == {**seen, "dog": seen["dog"] - 1}
    assert whole["unreadable"] == []
    (reason,) = found["unreadable"]
    assert "broken/train/dog" in reason


def test_a_folder_without_one_readable_image_is_refused_in_words(page, photos, tmp_path, model_folder):
    folder = shutil.copytree(photos, tmp_path / "all-broken")
    for path in folder.rglob("*.png"):
        path.write_bytes(path.read_bytes()[:60])
    answer = page.get("/known", params={"data": str(folder), "model": str(model_folder)})
    assert answer.status_code == 400
    assert "cannot read image" in answer.text


@pytest.mark.parametrize(("said", "offered"), [(REASON, True), ("error: no such folder\n", False)])
def test_a_run_that_failed_for_such_an_image_is_started_again_without_it(page, root, said, offered):
    queue = Queue(root / ".studio" / "jobs")
    job = queue.add(root / "failed", ["forget", "pets", "--forget=cat"])
    queue._log(job).write_text(said)
    queue._write(job.model_copy(update={"ended": True}))
    assert ("Start again without such images" in page.get("/run/failed").text) == offered
    with FolderLock(queue.folder):  # another server has the queue, so nothing starts here
        page.post("/do/resume", data={"run": "failed", **({"skip": "1"} if offered else {})})
    assert queue.of(root / "failed").arguments == (*job.arguments, *(["--skip-bad-images"] if offered else []))
    queue.stop(root / "failed")
