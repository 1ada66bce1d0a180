"""A random CLIP in the form of Hugging Face, its weights under OpenAI's names, and a folder to spoil."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file

from tests.models.clip_files import (
    answers,
    clip,
    openai_names,
)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The Hugging Face folder, and its answers."""
    folder = tmp_path_factory.mktemp("quick")
    clip().save_pretrained(folder)
    return folder, answers(folder)


@pytest.fixture(scope="module")
def weights(quick):
    return openai_names(load_file(quick[0] / "model.safetensors"))


@pytest.fixture
def folder(tmp_path, quick):
    """A Hugging Face folder to be spoiled; its config is the whole one's."""
    (tmp_path / "config.json").write_bytes((quick[0] / "config.json").read_bytes())
    return tmp_path
