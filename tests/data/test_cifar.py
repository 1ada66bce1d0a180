"""CIFAR-10 written in its true on-disk forms, whole, damaged and malicious."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import pickle
import re
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import unsee
from unsee import DataError
from unsee.data import cifar, fetch
from unsee.data.paper_names import CIFAR10
from unsee.data.pickles import read_pickle


@pytest.fixture(scope="module")
def pixels():
    """Six batches whose images can be told apart, mostly flat so that files stay small."""
    made = np.zeros((6, 10_000, 32, 32, 3), dtype=np.uint8)
    number = np.arange(60_000).reshape(6, 10_000)
    for axis, shift in ((0, 0), (1, 8), (2, 16)):
        made[:, :, 0, 0, axis] = number >> shift
    made[:, :, 5, 7] = (10, 20, 30)
    return made


@pytest.fixture(scope="module")
def labels():
    return np.random.default_rng(0).integers(0, 10, (6, 10_000))


@pytest.fixture(scope="module")
def seals(pixels):
    return {part: hashlib.sha256(p.tobytes()).hexdigest() for part, p in zip(cifar.BATCHES, pixels, strict=True)}


def write_binary(folder, pixels, labels):
    (folder / "cifar-10-batches-bin").mkdir(parents=True)
    for part, p, y in zip(cifar.BATCHES, pixels, labels, strict=True):
        rows = np.concatenate([y[:, None].astype(np.uint8), p.transpose(0, 3, 1, 2).reshape(10_000, 3072)], axis=1)
        rows.tofile(folder / "cifar-10-batches-bin" / f"{part}.bin")


def write_python(folder, pixels, labels):
    (folder / "cifar-10-batches-py").mkdir(parents=True)
    for part, p, y in zip(cifar.BATCHES, pixels, labels, strict=True):
        batch = {b"data": p.transpose(0, 3, 1, 2).reshape(10_000, 3072), b"labels": y.tolist(), b"batch_label": b"b"}
        (folder / "cifar-10-batches-py" / part).write_bytes(pickle.dumps(batch, protocol=3))


def write_sheets(folder, pixels, labels):
    folder.mkdir(parents=True, exist_ok=True)
    for part, p in zip(cifar.BATCHES, pixels, strict=True):
        Image.fromarray(p.reshape(10_000, 1024, 3)).save(folder / f"{part}.png", compress_level=1)
    (folder / "train_lables.json").write_text(json.dumps(labels[:5].ravel().tolist()))
    (folder / "test_lables.json").write_text(json.dumps(labels[5].tolist()))


FORMS = {"binary": write_binary, "python": write_python, "sheets": write_sheets}


@pytest.fixture(scope="module")
def written(tmp_path_factory, pixels, labels):
    """Writes a form once, and gives a folder of links to its files: to damage a file, replace the link."""
    wholes = {}

    def write(form, folder):
        if form not in wholes:
            wholes[form] = tmp_path_factory.mktemp(form)
            FORMS[form](wholes[form], pixels, labels)
        for file in filter(Path.is_file, wholes[form].rglob("*")):
            link = folder / file.relative_to(wholes[form])
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)

    return write


def replace(path, content):
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("form", ["python", "sheets", pytest.param("binary", marks=pytest.mark.slow)])
def test_every_form_gives_the_same_images_labels_and_names(form, written, tmp_path, pixels, labels, seals):
    written(form, tmp_path)
    assert cifar.find_cifar10(tmp_path) == form
    data = cifar.load_cifar10(tmp_path, seals)
    assert data.class_names == CIFAR10
    assert np.array_equal(data.train.labels, labels[:5].ravel())
    assert np.array_equal(data.test.labels, labels[5])
    for row in (0, 9_999, 10_000, 49_999):
        assert np.array_equal(np.asarray(data.train.read(row)), pixels.reshape(-1, 32, 32, 3)[row])
    assert np.array_equal(np.asarray(data.test.read(123)), pixels[5, 123])
    assert data.train.digest(3) != data.train.digest(4)


def test_pixels_are_read_batch_by_batch_and_only_when_needed(written, tmp_path, seals):
    written("binary", tmp_path)
    data = cifar.load_cifar10(tmp_path, seals)
    data.train.read(20_001)
    assert set(data.train.source._kept) == {2}


def test_a_damaged_batch_is_refused(written, tmp_path, seals):
    written("binary", tmp_path)
    batch = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    content = bytearray(batch.read_bytes())
    content[500] ^= 1
    replace(batch, content)
    data = cifar.load_cifar10(tmp_path, seals)
    data.train.read(0)
    with pytest.raises(DataError, match=r"data_batch_2\.bin: its pixels are not CIFAR-10's"):
        data.train.read(10_000)
    batch.write_bytes(content[:-7])
    with pytest.raises(DataError, match="is 30729993 bytes long, not 30730000"):
        cifar.load_cifar10(tmp_path, seals)


def test_damaged_sheets_and_labels_are_refused(written, tmp_path, seals):
    written("sheets", tmp_path)
    sheet = tmp_path / "data_batch_1.png"
    replace(sheet, sheet.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"data_batch_1\.png: damaged"):
        cifar.load_cifar10(tmp_path, seals).train.read(0)
    replace(tmp_path / "test_lables.json", b"[1, 2")
    with pytest.raises(DataError, match=r"test_lables\.json: damaged"):
        cifar.load_cifar10(tmp_path, seals)
    replace(tmp_path / "test_lables.json", b"[1, 2]")
    with pytest.raises(DataError, match="labels of test_batch are damaged"):
        cifar.load_cifar10(tmp_path, seals)


class Bomb:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), "w"))


def test_a_malicious_pickle_runs_nothing(written, tmp_path):
    marker = tmp_path / "ran"
    for content in ({b"data": Bomb(marker)}, Bomb(marker)):
        with pytest.raises(DataError, match="refused, it holds more than data"):
            read_pickle(tmp_path / "batch", pickle.dumps(content))
    assert not marker.exists()
    for content, message in (
        (b"", "damaged"),
        (pickle.dumps([1]), "not a dictionary"),
        (pickle.dumps({})[:3], "damaged"),
    ):
        with pytest.raises(DataError, match=message):
            read_pickle(tmp_path / "batch", content)
    written("python", tmp_path)
    for content, message in (({b"labels": [0] * 10_000}, "no uint8 'data'"), ({b"labels": 5}, "no list of 'labels'")):
        replace(tmp_path / "cifar-10-batches-py" / "data_batch_1", pickle.dumps(content))
        with pytest.raises(DataError, match=message):
            cifar.load_cifar10(tmp_path, seals={}).train.read(0)


class Crafted:
    """Pickles as it is told."""

    def __init__(self, *reduced: object) -> None:
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


FIELDS = {"offset": (np.dtype("u1"), 1 << 40), "pointer": (np.dtype("O"), 0)}  # outside of the array; of its bytes
READ = "import sys; from pathlib import Path; from unsee.data.pickles import read_pickle as read; "
READ += "path = Path(sys.argv[1]); print(read(path, path.read_bytes())[b'data'])"


@pytest.mark.parametrize("field", FIELDS)
def test_a_crafted_dtype_cannot_corrupt_memory(field, tmp_path):
    kind = Crafted(np.dtype, ("V8", False, True), (3, "|", None, ("a",), {"a": FIELDS[field]}, 8, 1, 0))
    state = 1, (1,), kind, False, b"A" * 8
    array = Crafted(np.empty(0).__reduce__()[0], (np.ndarray, (0,), b"b"), state)
    (tmp_path / "batch").write_bytes(pickle.dumps({b"data": array}, protocol=3))
    done = subprocess.run([sys.executable, "-c", READ, tmp_path / "batch"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, "the process crashed, or believed the file"
    assert re.search(r"DataError: .*batch: (refused, it holds more than data|damaged)", done.stderr)


def test_a_pickle_that_is_not_the_published_one_is_not_opened(written, tmp_path):
    written("python", tmp_path)
    with pytest.raises(DataError, match=r"data_batch_1: is not CIFAR-10's \(its md5 is not c99cafc15224"):
        cifar.load_cifar10(tmp_path)


def test_named_sets_are_looked_for_in_the_data_folder(written, tmp_path, labels):
    with pytest.raises(DataError, match="get it with: unsee data get cifar10"):
        unsee.load_data("cifar10", data_dir=tmp_path)
    with pytest.raises(DataError, match="say where cifar10 is"):
        unsee.load_data("cifar10")
    written("binary", tmp_path / "cifar10")
    assert len(unsee.load_data("cifar10", data_dir=tmp_path).train) == 50_000
    held_out = unsee.load_data("cifar10-batch5", data_dir=tmp_path)
    assert np.array_equal(held_out.train.labels, labels[4])
    assert len(held_out.test) == 10_000


@pytest.fixture
def served(tmp_path):
    """A folder served over HTTP, ranges included; and what was asked for."""
    folder = tmp_path / "served"
    folder.mkdir()
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            asked.append(wanted)
            content = (folder / self.path.strip("/")).read_bytes()
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:])

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()
        thread.join()


def test_an_interrupted_download_is_resumed_and_verified(served, tmp_path):
    folder, address, asked = served
    content = bytes(range(256)) * 100
    (folder / "file").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    target = tmp_path / "file"
    (tmp_path / "file.part").write_bytes(content[:1000])
    fetch.download(f"{address}/file", target, "sha256", digest)
    assert target.read_bytes() == content
    assert asked == ["bytes=1000-"]
    (tmp_path / "file.part").write_bytes(content)
    fetch.download(f"{address}/file", target, "sha256", digest)
    assert target.read_bytes() == content


def test_a_wrong_download_never_gets_its_name(served, tmp_path):
    folder, address, _ = served
    (folder / "file").write_bytes(b"something else")
    with pytest.raises(DataError, match="it is incomplete or was changed"):
        fetch.download(f"{address}/file", tmp_path / "file", "md5", "0" * 32)
    assert not (tmp_path / "file").exists()
    assert not (tmp_path / "file.part").exists()
    with pytest.raises(DataError, match="cannot be reached"):
        fetch.download("http://127.0.0.1:9/file", tmp_path / "file", "md5", "0" * 32)


def test_archives_are_unpacked_whole_and_never_outside(tmp_path):
    def archive(name, members):
        with tarfile.open(tmp_path / name, "w:gz") as out:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                out.addfile(info, io.BytesIO(content))
        return tmp_path / name

    goal = tmp_path / "goal"
    goal.mkdir()
    fetch._unpack(archive("good.tgz", {"a/b.txt": b"b", "c.txt": b"c"}), goal, lambda name: name)
    assert (goal / "a" / "b.txt").read_bytes() == b"b"
    with pytest.raises(DataError, match="outside"):
        fetch._unpack(archive("bad.tgz", {"../evil.txt": b"e"}), goal, lambda name: name)
    assert not (tmp_path / "evil.txt").exists()
    damaged = tmp_path / "damaged.tgz"
    damaged.write_bytes((tmp_path / "good.tgz").read_bytes()[:40])
    with pytest.raises(DataError, match="damaged archive"):
        fetch._unpack(damaged, goal, lambda name: name)


def test_the_embedded_images_are_cifar10s_and_balanced():
    data = unsee.load_data("demo")
    assert data.class_names == CIFAR10
    assert np.bincount(data.train.labels).min() >= 64
    assert np.bincount(data.test.labels).min() >= 200
    assert data.train.read(0).size == (32, 32)
