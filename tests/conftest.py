from __future__ import annotations

import os

import pytest

import unsee
from tests import tiny

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    return tiny.write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory):
    return tiny.write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def model(model_folder):
    return unsee.load_model(model_folder)


@pytest.fixture(scope="session")
def data(image_folder):
    return unsee.load_data(image_folder)
