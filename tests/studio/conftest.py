"""A folder of runs behind its page, in this process: the same application that `unsee studio` serves."""

from __future__ import annotations

import shutil

import pytest
from PIL import Image

import unsee
from tests import tiny
from unsee.cli import main
from unsee.data import load_data
from unsee.studio.hosting import open_studio

SCRIPT = "<script>alert(1)<_script>"  # a folder cannot have a slash in its name
SCRIPT_CLASS = SCRIPT.replace("_", " ")
ORIGIN = "http://127.0.0.1"


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Images of a few classes, one with a name that a page must not take for its own."""
    return tiny.write_images(tmp_path_factory.mktemp("photos"), names=("cat", "dog", "deer", SCRIPT), train=6, test=5)


@pytest.fixture(scope="session")
def made(tmp_path_factory, model_folder, photos):
    """A finished run of these images."""
    out = tmp_path_factory.mktemp("made") / "pets"
    options = ["--forget", f"cat,{SCRIPT_CLASS}", "--iterations", 4, "--shots", 2, "--model", model_folder]
    assert main([str(a) for a in ("forget", photos, *options, "--no-cache", "--out", out)]) == 0
    return out


@pytest.fixture
def root(tmp_path, made):
    """A folder with a finished run, an interrupted one and a damaged one."""
    folder = tmp_path / "runs"
    shutil.copytree(made, folder / "pets")
    stopped = shutil.copytree(made, folder / "deep" / "stopped")
    (stopped / "result.json").unlink()
    damaged = shutil.copytree(made, folder / "damaged")
    (damaged / "config.json").write_text("{")
    return folder


def open_app(root, model=None, **options):
    """The application and what lets a visitor in."""
    models = {} if model is None else {model.card.name: model}

    def open_data(name, seed, names):
        return load_data(name, seed=seed or 0, names=names)

    return open_studio(
        root,
        open_data,
        lambda name: models.get(name) or unsee.load_model(name),
        data_sets=[{"name": "demo", "found": True}],
        **options,
    )


def open_client(app, **options):
    from starlette.testclient import TestClient

    return TestClient(app, base_url=ORIGIN, headers={"origin": ORIGIN}, follow_redirects=False, **options)


@pytest.fixture
def page(root, model):
    """A visitor who was let in."""
    app, visitors = open_app(root, model)
    client = open_client(app)
    assert client.get(f"/?token={visitors.token}").status_code == 303
    return client


@pytest.fixture
def photo(photos):
    return next((photos / "test" / "cat").iterdir())


@pytest.fixture
def large_photo(tmp_path):
    """Few bytes, many pixels."""
    path = tmp_path / "large.png"
    Image.new("1", (12_000, 12_000)).save(path)
    return path
