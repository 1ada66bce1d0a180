"""A small CLIP with random weights in its true form, and small images to go with it.

`python -m tests.tiny FOLDER` writes both.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TEXT = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
VISION = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
}


def make_clip(text=TEXT, vision=VISION, projection=32, seed=0):
    """A transformers CLIPModel with random weights of a size that makes prompts matter."""
    from transformers import CLIPConfig, CLIPModel

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = CLIPConfig(text_config=dict(text), vision_config=dict(vision), projection_dim=projection)
        model = CLIPModel(config).eval()
        generator = torch.Generator().manual_seed(seed + 1)
        for name, weight in model.named_parameters():
            if name.endswith("proj.weight") or (".fc" in name and name.endswith("weight")):
                torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5, generator=generator)
            elif name.endswith("bias"):
                torch.nn.init.normal_(weight, std=0.1, generator=generator)
    return model


def write_model(folder: Path, seed: int = 0) -> Path:
    """A Hugging Face CLIP folder."""
    make_clip(seed=seed).save_pretrained(folder)
    return folder


def write_resnet(folder: Path, seed: int = 0) -> Path:
    """A folder with a ResNet of a few thousand weights, to begin training from."""
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        ResNetForImageClassification(ResNetConfig(**sizes, layer_type="basic", num_labels=3)).save_pretrained(folder)
    return folder


def write_vit(folder: Path, side: int = 48, seed: int = 0) -> Path:
    """A folder with a small ViT that takes images of one size."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = ViTConfig(**sizes, image_size=side, patch_size=16, num_labels=3)
        ViTForImageClassification(config).save_pretrained(folder)
    return folder


def write_images(folder: Path, names=NAMES, train: int = 8, test: int = 6, size: int = 24, seed: int = 0) -> Path:
    """Class folders of noisy images, each class with its own colours."""
    rng = np.random.default_rng(seed)
    for name in names:
        colours = rng.integers(0, 256, (2, 2, 3))
        for part, count in (("train", train), ("test", test)):
            (folder / part / name).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                pixels = np.kron(colours, np.ones((size // 2, size // 2, 1))) + rng.normal(0, 40, (size, size, 3))
                image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                image.save(folder / part / name / f"{i:03}.png")
    return folder


if __name__ == "__main__":
    root = Path(sys.argv[1])
    write_model(root / "model")
    write_images(root / "images", train=32, test=50)
