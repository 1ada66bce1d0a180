"""Damaged, foreign and code-carrying folders of dual encoders: one clear line, and nothing in them is run."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.clip_files import refusal
from tests.models.dual_files import FAMILIES, modern, pixels, write
from tests.models.test_checkpoint_safety import Touch
from unsee.errors import MissingExtra
from unsee.models import load_model

pytestmark = modern

QUICK = ["siglip", *(pytest.param(family, marks=pytest.mark.slow) for family in FAMILIES[1:])]
CODE = "from pathlib import Path\nPath({marker!r}).touch()\nclass Own: ...\n"


@pytest.fixture(scope="module", autouse=True)
def silent():
    logging.getLogger("transformers").setLevel(logging.CRITICAL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    made = {}

    def get(family: str) -> Path:
        if family not in made:
            made[family] = write(tmp_path_factory.mktemp(family), family)
        return made[family]

    return get


@pytest.fixture
def spoiled(whole, tmp_path):
    """A copy to be spoiled."""
    return lambda family: shutil.copytree(whole(family), tmp_path / "copy")


def change(path: Path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("family", QUICK)
def test_damaged_weights_are_refused(spoiled, family):
    folder = spoiled(family)
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    for broken in (content[: len(content) // 2], content[:4], b"", b"\x00" * 200):
        weights.write_bytes(broken)
        assert str(folder) in refusal(folder)
    weights.unlink()
    assert str(folder) in refusal(folder)


@pytest.mark.parametrize("family", QUICK)
def test_weights_that_do_not_fit_are_refused(spoiled, family):
    folder = spoiled(family)
    weights = load_file(folder / "model.safetensors")
    key = next(name for name in weights if "text_model" in name and name.endswith("bias"))
    kept = weights.pop(key)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert f"{key} is missing" in refusal(folder)
    save_file(weights | {key: torch.zeros(3)}, folder / "model.safetensors", {"format": "pt"})
    ours = f"{key} has shape (3,), expected {tuple(kept.shape)}"  # MetaCLIP 2 is CLIP, which the library does not load
    assert (ours if family == "metaclip_2" else f"{key} has another shape") in refusal(folder)
    surplus = {key: kept, "text_model.encoder.layers.99.mlp.fc1.bias": kept.clone()}
    save_file(weights | surplus, folder / "model.safetensors", {"format": "pt"})
    assert "layers.99.mlp.fc1.bias does not belong to this" in refusal(folder)


@pytest.mark.parametrize("family", QUICK)
def test_a_pickle_that_wants_to_run_code_is_refused_and_does_not_run(spoiled, tmp_path, family):
    folder, marker = spoiled(family), tmp_path / "ran"
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert load_model(folder).bind(pixels(1), ["cat", "dog"]), "as older checkpoints are written"
    torch.save(weights | {"more": Touch(marker)}, folder / "pytorch_model.bin")
    assert str(folder) in refusal(folder)
    assert not marker.exists()


@pytest.mark.parametrize("family", QUICK)
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "preprocessor_config.json"])
def test_code_in_a_folder_is_never_run(spoiled, tmp_path, family, name):
    folder, marker = spoiled(family), tmp_path / "ran"
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    classes = ("AutoConfig", "AutoModel", "AutoTokenizer", "AutoImageProcessor", "AutoProcessor")
    path = folder / name if (folder / name).is_file() else folder / "processor_config.json"
    change(path, auto_map=dict.fromkeys(classes, "own.Own"))
    assert "'auto_map', which asks for code beyond the library's; it was not run" in refusal(folder)
    assert not marker.exists()


@pytest.mark.slow
def test_that_code_does_run_where_it_is_trusted(spoiled, tmp_path):
    """The proof that the test above tests something."""
    folder, marker = spoiled("siglip"), tmp_path / "ran"
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    change(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.Own"})
    code = f"import transformers; transformers.AutoConfig.from_pretrained({str(folder)!r}, trust_remote_code=True)"
    home = {"HF_HOME": str(tmp_path / "home"), "PATH": ""}
    subprocess.run([sys.executable, "-c", code], capture_output=True, env=home, check=False)
    assert marker.exists()


@pytest.mark.parametrize(
    ("key", "value"), [("attn_implementation", "someone/kernel"), ("quantization_config", {"quant_method": "own"})]
)
def test_kernels_and_quantized_weights_are_refused(spoiled, key, value):
    folder = spoiled("siglip")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"][key] = value  # also below the top
    (folder / "config.json").write_text(json.dumps(config))
    assert f"has {key!r}" in refusal(folder)


def test_a_foreign_text_tower_is_refused(spoiled):
    folder = spoiled("vision-text-dual-encoder")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["model_type"] = "gpt2"
    (folder / "config.json").write_text(json.dumps(config))
    assert "its text tower is 'gpt2'; those that can be used: bert" in refusal(folder)


def test_weights_of_another_family_are_refused(spoiled, whole):
    folder = spoiled("siglip")
    shutil.copy(whole("altclip") / "model.safetensors", folder / "model.safetensors")
    assert str(folder) in refusal(folder)


def test_a_tokenizer_that_is_larger_than_the_model_is_refused(spoiled, whole):
    folder = spoiled("siglip")
    for path in whole("siglip2").glob("tokenizer*"):
        shutil.copy(path, folder / path.name)
    assert "tokens, the model" in refusal(folder)


@pytest.mark.slow
def test_without_tokenizer_or_image_processor_there_is_one_line(spoiled):
    folder = spoiled("siglip")
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises((MissingExtra, RuntimeError)) as caught:  # SigLIP's own tokenizer needs a package
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_an_adapter_is_refused(spoiled):
    folder = spoiled("siglip")
    (folder / "adapter_config.json").write_text("{}")
    assert "an adapter of another model" in refusal(folder)
