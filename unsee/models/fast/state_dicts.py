"""Reads a CLIP's weights in one file without a config: names, prefix and sizes are found in the weights themselves.

The file is what `torch.save(model.state_dict(), FILE)` writes, bare or inside a training loop's checkpoint, with
Hugging Face's, OpenAI's or OpenCLIP's names. Weights say neither how wide heads are (taken to be 64, as in every CLIP
up to ViT-L) nor the activation (taken to be OpenAI's, quick_gelu): `ARCHITECTURE:FILE` says both.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from unsee.errors import ModelError
from unsee.models.fast.checkpoint_record import Checkpoint, Preprocess, TowerSizes
from unsee.models.fast.open_clip import check_axes, from_openai_names
from unsee.models.fast.weights import Weights, floats, read_weights

HEAD = 64
# Vision head width, then what the weights must have: vision width and patch size.
VIT_SIZES: dict[str, tuple[int, int, int]] = {
    "ViT-B-32": (HEAD, 768, 32),
    "ViT-B-16": (HEAD, 768, 16),
    "ViT-L-14": (HEAD, 1024, 14),
    "ViT-L-14-336": (HEAD, 1024, 14),
    "ViT-H-14": (80, 1280, 14),
    "ViT-g-14": (88, 1408, 14),
    "ViT-bigG-14": (104, 1664, 14),
}
ASSUMED = (
    "{name} does not say its activation: taken to be OpenAI's, quick_gelu. If it was fine-tuned from one of LAION's "
    "CLIPs, name its architecture, as in ViT-B-32:{name}"
)
_TOKENS = "text_model.embeddings.token_embedding.weight"
_PATCHES = "vision_model.embeddings.patch_embedding.weight"
_HUGGING_FACE = (_TOKENS, _PATCHES)
_OPENAI = ("visual.conv1.weight", "text.token_embedding.weight", "token_embedding.weight")
_AXES = {  # of the weights whose shapes give the sizes
    "text_model.embeddings.position_embedding.weight": 2,
    "text_projection.weight": 2,
    "text_model.encoder.layers.0.mlp.fc1.weight": 2,
    "vision_model.embeddings.position_embedding.weight": 2,
    "vision_model.encoder.layers.0.mlp.fc1.weight": 2,
}


def read_state_file(path: Path) -> Checkpoint:
    """The checkpoint in a file of weights: sizes are those of the weights, heads and activation OpenAI's."""
    found = _read(path, quick_gelu=True, head=HEAD)
    for name, (head, width, patch) in VIT_SIZES.items():
        if head != HEAD and (found.vision.width, found.patch) == (width, patch):
            raise ModelError(f"{path}: its heads are not {HEAD} wide; say its architecture, as in {name}:{path.name}")
    return found


def read_architecture_file(architecture: str, path: Path) -> Checkpoint:
    """The checkpoint in a file of weights of a named architecture."""
    if not path.is_file():
        raise ModelError(f"model {path}: no such file")
    head, width, patch = VIT_SIZES[architecture.removesuffix("-quickgelu")]
    found = _read(path, quick_gelu=architecture.endswith("-quickgelu"), head=head, architecture=architecture)
    if (found.vision.width, found.patch) != (width, patch):
        raise ModelError(
            f"{path}: not a {architecture}: its vision width and patch are {found.vision.width} and {found.patch}, "
            f"not {width} and {patch}"
        )
    return found


def architecture_names() -> list[str]:
    """The architectures that a weights file can be named with."""
    return [name + suffix for name in VIT_SIZES for suffix in ("", "-quickgelu")]


def in_hugging_face_names(source: str, state: Weights) -> Weights:
    """Weights of a folder with Hugging Face's config: without prefixes, OpenAI's and OpenCLIP's names replaced."""
    state = _bare(state)
    if any(key in state for key in _OPENAI) and not any(key in state for key in _HUGGING_FACE):
        return from_openai_names(source, state, True, HEAD, None).state
    return state


def _read(path: Path, quick_gelu: bool, head: int, architecture: str | None = None) -> Checkpoint:
    state = _bare(read_weights(path))
    if any(key in state for key in _HUGGING_FACE):
        found = _from_hugging_face_names(str(path), state, quick_gelu, head)
        return found if architecture else replace(found, assumed=ASSUMED.format(name=path.name))
    if not architecture and path.suffix in (".bin", ".safetensors"):
        # OpenCLIP's own releases: most use another activation than OpenAI's.
        raise ModelError(f"{path}: say its architecture, as in ViT-B-16:{path.name}")
    return from_openai_names(str(path), state, quick_gelu, head, None)


def _bare(state: Weights) -> Weights:
    """The CLIP's weights under their own names: without what wrappers put before them, or a larger model has beside."""
    for anchor in (*_HUGGING_FACE, *_OPENAI):
        for key in state:
            if key == anchor or key.endswith(f".{anchor}"):
                prefix = key.removesuffix(anchor)
                return {name.removeprefix(prefix): w for name, w in state.items() if name.startswith(prefix)}
    return state


def _from_hugging_face_names(source: str, state: Weights, quick_gelu: bool, head: int) -> Checkpoint:
    for key, tower in ((_TOKENS, "text"), (_PATCHES, "image")):
        if key not in state:
            raise ModelError(f"{source}: has no {tower} tower ({key} is missing); save the whole CLIP")
    check_axes(source, state, {_TOKENS: 2, _PATCHES: 4} | _AXES)
    (vocabulary, width), patches = state[_TOKENS].shape, state[_PATCHES].shape
    patch = patches[-1]
    image = patch * math.isqrt(state["vision_model.embeddings.position_embedding.weight"].shape[0] - 1)
    return Checkpoint(
        source=source,
        text=_sizes(state, "text_model", width, HEAD, quick_gelu),
        vision=_sizes(state, "vision_model", patches[0], head, quick_gelu),
        vocabulary=vocabulary,
        positions=state["text_model.embeddings.position_embedding.weight"].shape[0],
        embedding=state["text_projection.weight"].shape[0],
        image=image,
        patch=patch,
        eos=None,
        preprocess=Preprocess(image, image),
        state=floats(state),
    )


def _sizes(state: Weights, tower: str, width: int, head: int, quick_gelu: bool) -> TowerSizes:
    layers = f"{tower}.encoder.layers."
    depth = len({key.removeprefix(layers).partition(".")[0] for key in state if key.startswith(layers)})
    hidden = state[f"{layers}0.mlp.fc1.weight"].shape[0]
    return TowerSizes(width, depth, max(1, width // head), hidden, "quick_gelu" if quick_gelu else "gelu")
