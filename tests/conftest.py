"""Shared models, images and finished runs. Every test runs on one thread.

The models here are tiny: a second thread would spend its time waiting, and waiting counts as CPU time.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import socket

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, and for every process that a test starts
os.environ["HF_HUB_OFFLINE"] = "1"

import unsee  # isort: skip  # first: it keeps onnxruntime from reporting its use

import numpy as np
import onnxruntime
import pytest
import torch

from tests import tiny

torch.set_num_threads(1)
SessionOptions = onnxruntime.SessionOptions


def one_thread_options() -> onnxruntime.SessionOptions:
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return options


onnxruntime.SessionOptions = one_thread_options
getaddrinfo = socket.getaddrinfo


def look_up_nothing(host: object, *args: object, **given: object) -> object:
    """No test asks a name server: names beyond this machine are not known, whatever the network says."""
    name = host.decode() if isinstance(host, bytes) else host
    if name not in (None, "", "localhost", "::1", "0.0.0.0") and not str(name).startswith("127."):
        raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known ({name}: tests look nothing up)")
    return getaddrinfo(host, *args, **given)


socket.getaddrinfo = look_up_nothing


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


@pytest.fixture(scope="session")
def processes():
    """Starts processes that share one import of the libraries, which takes longer than most of what they do."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "transformers.models.clip.modeling_clip", "unsee.cli", "unsee.serve.server"]
    )
    return context


@pytest.fixture(scope="session")
def demo_features(tmp_path_factory):
    """A cache folder for features of the embedded images: encoding them all would take 15 seconds of CPU time."""
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="session")
def few_photos():
    """The embedded data with fifty test photos of each class, each four times: fewer photos to encode."""
    found = unsee.load_data("demo")
    rows = np.arange(len(found.test))
    for label in range(len(found.class_names)):
        own = np.flatnonzero(found.test.labels == label)
        rows[own] = np.resize(own[:50], len(own))
    return dataclasses.replace(found, test=found.test.subset(rows))


@pytest.fixture
def few_demo_photos(monkeypatch, few_photos):
    """Makes them what `demo` loads."""
    monkeypatch.setattr("unsee.data.load_demo", lambda: few_photos)
