"""OpenCLIP models with timm towers: through `open_clip` where it is installed, a clear line where it is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.models.clip_files import refusal
from tests.models.dual_files import pixels
from tests.tiny import NAMES
from unsee.errors import MissingExtra
from unsee.methods.learners import trainable_copy
from unsee.models import load_model
from unsee.models.fast.text_tower import TextTower
from unsee.models.library.text_towers import LibraryTower

CONFIG = {
    "embed_dim": 32,
    "vision_cfg": {"timm_model_name": "test_convnext", "timm_pool": "", "timm_proj": "linear", "image_size": 64},
    "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
}


def write(folder: Path, weights: dict[str, torch.Tensor], config: dict) -> Path:
    folder.mkdir(exist_ok=True)
    settings = {"model_cfg": config, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(settings))
    save_file({key: value.contiguous() for key, value in weights.items()}, folder / "open_clip_model.safetensors")
    return folder


def test_without_open_clip_its_install_line_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    weights = {"logit_scale": torch.tensor(1.0)}
    with pytest.raises(MissingExtra, match=r"open_clip_torch; install it with: .*pip install .*\[open-clip\]"):
        load_model(write(tmp_path, weights, CONFIG))
    foreign = CONFIG | {"text_cfg": {"hf_model_name": "roberta-base"}}
    assert "text_cfg.hf_model_name = 'roberta-base'" in refusal(write(tmp_path, weights, foreign))


@pytest.fixture
def make(tmp_path):
    """Writes a random model of `open_clip`, in one of its forms."""
    open_clip = pytest.importorskip("open_clip")

    def written(form: str):
        config = json.loads(json.dumps(CONFIG))
        if form == "both ways":
            config["text_cfg"]["no_causal_mask"] = True
        if form != "plain":
            config["custom_text"] = True
        parts = {key: value for key, value in config.items() if key != "custom_text"}
        torch.manual_seed(0)
        model = (open_clip.CLIP if form == "plain" else open_clip.CustomTextCLIP)(**parts).eval()
        for name, weight in model.named_parameters():
            if name.endswith("token_embedding.weight"):
                torch.nn.init.normal_(weight, std=0.5)
        return write(tmp_path / "model", dict(model.state_dict()), config), model.requires_grad_(False)

    return written


@pytest.mark.parametrize("form", ["plain", "custom text", "both ways"])
def test_answers_are_those_of_open_clip(make, form):
    folder, theirs = make(form)
    model = load_model(folder)
    assert isinstance(model.tower, LibraryTower if form == "both ways" else TextTower)
    bound = model.bind(pixels(3), NAMES)
    given = np.random.default_rng(0).normal(0, 0.5, (2, 3, 64)).astype(np.float32)
    prepared = torch.from_numpy(np.stack([model.encoder.prepare(Image.fromarray(one)) for one in pixels(3)]))
    table = (theirs if form == "plain" else theirs.text).token_embedding.weight
    tokens = model.tokenizer

    def answers(front: list[int], template: str) -> np.ndarray:
        ids = [[tokens.sos, *front, *tokens.ids(template.format(name)), tokens.eot] for name in NAMES]
        padded = torch.tensor([[*text, *[0] * (20 - len(text))] for text in ids])
        images, texts = (
            F(x, normalize=True) for F, x in ((theirs.encode_image, prepared), (theirs.encode_text, padded))
        )
        return (theirs.logit_scale.exp() * images @ texts.T).softmax(dim=-1).numpy()

    assert np.abs(bound.zero_shot("a photo of a {}.") - answers([], "a photo of a {}.")).max() < 1e-5
    for one, found in zip(given, bound.confidences(given), strict=True):
        table[1000:1003] = torch.from_numpy(one)
        assert np.abs(found - answers([1000, 1001, 1002], "{}.")).max() < 1e-5
    copied = trainable_copy(model)
    assert np.allclose(copied.bind(pixels(3), NAMES).confidences(given), bound.confidences(given), atol=1e-6)


def test_weights_that_do_not_fit_open_clips_model_are_refused(make):
    folder, _ = make("custom text")
    path = folder / "open_clip_model.safetensors"
    weights = load_file(path)
    save_file({key: value for key, value in weights.items() if key != "visual.head.proj.weight"}, path)
    assert "its weights do not fit" in refusal(folder)
    save_file(weights | {"visual.more": torch.zeros(1)}, path)
    assert "visual.more" in refusal(folder)
    path.write_bytes(path.read_bytes()[:1000])
    assert "truncated" in refusal(folder)
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"]["timm_model_name"] = "no_such_tower"
    write(folder, weights, config["model_cfg"])
    assert "open_clip cannot build it" in refusal(folder)
