"""OpenAI's ResNet CLIPs, against a reference written here in plain functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from tests.models.clip_files import clip, openai_names, refusal, write_torchscript
from tests.tiny import NAMES
from unsee.models import load_model
from unsee.models.white_box import class_embeddings

SMALL = {"width": 8, "depths": (1, 2, 1, 2), "side": 64}
RN50 = {"width": 64, "depths": (3, 4, 6, 3), "side": 224}
EMBEDDING = 64  # of the text tower that stands beside it


def resnet_weights(width: int, depths: tuple[int, ...], side: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights under OpenAI's names, with running statistics as after training."""
    rng = torch.Generator().manual_seed(seed)
    state: dict[str, torch.Tensor] = {}

    def conv(name: str, out: int, into: int, size: int) -> None:
        state[f"{name}.weight"] = torch.randn(out, into, size, size, generator=rng) * (2 / (into * size**2)) ** 0.5

    def norm(name: str, out: int) -> None:
        state[f"{name}.weight"] = 1 + 0.1 * torch.randn(out, generator=rng)
        state[f"{name}.bias"] = 0.1 * torch.randn(out, generator=rng)
        state[f"{name}.running_mean"] = 0.1 * torch.randn(out, generator=rng)
        state[f"{name}.running_var"] = 0.5 + torch.rand(out, generator=rng)
        state[f"{name}.num_batches_tracked"] = torch.tensor(7)

    for i, (out, into) in enumerate(((width // 2, 3), (width // 2, width // 2), (width, width // 2)), start=1):
        conv(f"conv{i}", out, into, 3)
        norm(f"bn{i}", out)
    wide = width
    for stage, depth in enumerate(depths):
        inside = width * 2**stage
        for i in range(depth):
            at = f"layer{stage + 1}.{i}"
            for name, out, into, size in (
                ("1", inside, wide, 1),
                ("2", inside, inside, 3),
                ("3", 4 * inside, inside, 1),
            ):
                conv(f"{at}.conv{name}", out, into, size)
                norm(f"{at}.bn{name}", out)
            if i == 0:
                conv(f"{at}.downsample.0", 4 * inside, wide, 1)
                norm(f"{at}.downsample.1", 4 * inside)
            wide = 4 * inside
    state["attnpool.positional_embedding"] = torch.randn((side // 32) ** 2 + 1, wide, generator=rng) * 0.1
    for name in ("q_proj", "k_proj", "v_proj", "c_proj"):
        out = EMBEDDING if name == "c_proj" else wide
        state[f"attnpool.{name}.weight"] = torch.randn(out, wide, generator=rng) * wide**-0.5
        state[f"attnpool.{name}.bias"] = 0.1 * torch.randn(out, generator=rng)
    return state


def reference(state: dict[str, torch.Tensor], x: torch.Tensor, depths: tuple[int, ...], heads: int) -> torch.Tensor:
    """The published forward, in double precision and in functions of torch alone."""
    state = {key: value.double() for key, value in state.items()}

    def step(x: torch.Tensor, conv: str, norm: str, **how) -> torch.Tensor:
        x = F.conv2d(x, state[f"{conv}.weight"], **how)
        stats = (state[f"{norm}.{kind}"] for kind in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *stats, eps=1e-5)

    for i in (1, 2, 3):
        x = step(x, f"conv{i}", f"bn{i}", padding=1, stride=2 if i == 1 else 1).relu()
    x = F.avg_pool2d(x, 2)
    for stage, depth in enumerate(depths, start=1):
        for i in range(depth):
            at, pool = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
            y = step(x, f"{at}.conv1", f"{at}.bn1").relu()
            y = step(y, f"{at}.conv2", f"{at}.bn2", padding=1).relu()
            y = step(F.avg_pool2d(y, pool), f"{at}.conv3", f"{at}.bn3")
            if i == 0:
                x = step(F.avg_pool2d(x, pool), f"{at}.downsample.0", f"{at}.downsample.1")
            x = (x + y).relu()
    x = x.flatten(2).permute(2, 0, 1)  # (positions, n, wide)
    x = torch.cat([x.mean(dim=0, keepdim=True), x]) + state["attnpool.positional_embedding"][:, None]
    found, _ = F.multi_head_attention_forward(
        x[:1],
        x,
        x,
        x.shape[-1],
        heads,
        None,
        torch.cat([state[f"attnpool.{name}_proj.bias"] for name in "qkv"]),
        None,
        None,
        False,
        0.0,
        state["attnpool.c_proj.weight"],
        state["attnpool.c_proj.bias"],
        training=False,
        need_weights=False,
        use_separate_proj_weight=True,
        q_proj_weight=state["attnpool.q_proj.weight"],
        k_proj_weight=state["attnpool.k_proj.weight"],
        v_proj_weight=state["attnpool.v_proj.weight"],
    )
    return F.normalize(found[0], dim=-1)


def checkpoint(sizes: dict) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The image tower alone, and the whole checkpoint."""
    image = resnet_weights(**sizes)
    text = {key: value for key, value in openai_names(clip().state_dict()).items() if not key.startswith("visual.")}
    return image, text | {f"visual.{key}": value for key, value in image.items()}


def compare(path, image: dict[str, torch.Tensor], sizes: dict, tolerance: float = 1e-5) -> None:
    model = load_model(path)
    side = sizes["side"]
    pixels = np.random.default_rng(0).integers(0, 256, (3, side, side, 3), dtype=np.uint8)
    bound = model.bind(pixels, NAMES)
    prepared = torch.from_numpy(np.stack([model.encoder.prepare(Image.fromarray(one)) for one in pixels]))
    theirs = reference(image, prepared.double(), sizes["depths"], sizes["width"] * 32 // 64)
    assert np.abs(bound.features.numpy() - theirs.numpy()).max() < tolerance
    words = torch.from_numpy(class_embeddings(model, NAMES, "a photo of a {}."))
    answers = (model.logit_scale * theirs.float() @ words.T).softmax(dim=-1)
    assert np.abs(bound.zero_shot("a photo of a {}.") - answers.numpy()).max() < tolerance
    assert np.ptp(answers.numpy(), axis=0).max() > 1e-3, "images matter"


def test_a_small_resnet_answers_as_the_reference(tmp_path):
    image, whole = checkpoint(SMALL)
    torch.save(whole, tmp_path / "small.pt")
    compare(tmp_path / "small.pt", image, SMALL)


@pytest.mark.slow
def test_rn50_from_its_archive_answers_as_the_reference(tmp_path):
    image, whole = checkpoint(RN50)
    half = {key: value.half() if value.is_floating_point() else value for key, value in whole.items()}
    compare(write_torchscript(tmp_path / "RN50.pt", whole), image, RN50)
    path = write_torchscript(tmp_path / "half.pt", half)  # as published, in half precision
    rounded = {key: half[f"visual.{key}"].float() for key in image}
    compare(path, rounded, RN50)


@pytest.mark.slow
def test_resnet_weights_that_do_not_fit_are_refused(tmp_path):
    _, whole = checkpoint(SMALL)
    lacking = {key: value for key, value in whole.items() if key != "visual.layer2.1.bn3.weight"}
    torch.save(lacking, tmp_path / "lacking.pt")
    assert "not a ResNet CLIP" in refusal(tmp_path / "lacking.pt")
    assert "layer2.1.bn3.weight" in refusal(tmp_path / "lacking.pt")
    torch.save(whole | {"visual.layer1.0.conv9.weight": torch.zeros(1)}, tmp_path / "surplus.pt")
    assert "conv9" in refusal(tmp_path / "surplus.pt")
    torch.save(whole | {"visual.conv2.weight": torch.zeros(4, 4, 1, 1)}, tmp_path / "shape.pt")
    assert "conv2.weight" in refusal(tmp_path / "shape.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "shape.pt").read_bytes()[:5000])
    assert "truncated" in refusal(tmp_path / "cut.pt")
