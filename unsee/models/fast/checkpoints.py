"""Reads CLIP checkpoints of every format into one record with Hugging Face's names.

| format        | what is on disk                                                                |
|---------------|--------------------------------------------------------------------------------|
| Hugging Face  | folder or hub id: config.json, model.safetensors (or shards, or pytorch_model.bin) |
| OpenAI        | one .pt: a TorchScript archive or a state dict                                 |
| OpenCLIP      | folder: open_clip_config.json and weights; or `ARCHITECTURE:weights-file`       |
| your own      | `torch.save(model.state_dict(), FILE)` of any of these, or a folder with that file |

Nothing in a file is ever executed: weights come from safetensors, from `torch.load(weights_only=True)`,
or, for TorchScript, from a reader that knows tensors only: `torch.jit.load` would run the archive's own
`__setstate__`, which can write files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unsee.errors import ModelError, unknown
from unsee.models.families import nearest_model
from unsee.models.fast.checkpoint_record import (
    OPENAI_MEAN,
    OPENAI_STD,
    Checkpoint,
    Preprocess,
    TowerSizes,
    check,
    expected,
    read_json,
)
from unsee.models.fast.open_clip import read_open_clip_folder
from unsee.models.fast.preprocessor_config import read_preprocess
from unsee.models.fast.state_dicts import (
    architecture_names,
    in_hugging_face_names,
    read_architecture_file,
    read_state_file,
)
from unsee.models.fast.weights import Weights, floats, read_weights
from unsee.models.library.dual_encoder import DUAL_ENCODERS, refuse_code

__all__ = [
    "OPENAI_MEAN",
    "OPENAI_STD",
    "Checkpoint",
    "Preprocess",
    "TowerSizes",
    "check",
    "expected",
    "read_checkpoint",
]

WEIGHT_ENDINGS = (".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".onnx", ".zip")
SAVED_ENDINGS = WEIGHT_ENDINGS[:5]
NO_WEIGHTS = ("optimizer", "scheduler", "training_args", "rng_state", "scaler")  # beside them in a trainer's folder


def read_checkpoint(name: str) -> Checkpoint:
    """Reads and checks the checkpoint of this name; ModelError names the file and the first problem."""
    path, folder = Path(name).expanduser(), find_folder(name)
    if folder is not None:
        found = _read_folder(folder)
    elif path.is_file():
        found = read_state_file(path)
    elif ":" in name and (parts := name.split(":", 1))[0] in architecture_names():
        found = read_architecture_file(parts[0], Path(parts[1]).expanduser())
    elif ":" in name and name.lower().startswith("vit"):
        raise ModelError(unknown("architecture", name.split(":", 1)[0], architecture_names()))
    else:
        raise ModelError(f"model {name!r}: no such file or folder{nearest_model(name) or '; see: unsee models'}")
    check(found)
    return found


def find_folder(name: str) -> Path | None:
    """The folder of this name, fetched from the hub if it is an id there; None for a file, or a name of neither."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file() or ":" in name or path.suffix in WEIGHT_ENDINGS:
        return None
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        return None
    return _from_hub(name)  # an id may have a dot in it, as in facebook/metaclip-b16-fullcc2.5b


def _read_folder(folder: Path) -> Checkpoint:
    if (folder / "open_clip_config.json").is_file():
        return read_open_clip_folder(folder)
    if (folder / "config.json").is_file():
        return _hugging_face(folder)
    return read_state_file(_only_weights(folder, "no config.json or open_clip_config.json in this folder"))


def _hugging_face(folder: Path) -> Checkpoint:
    config = read_json(folder / "config.json")
    kind = config.get("model_type")
    if kind not in ("clip", "metaclip_2"):  # MetaCLIP 2 has CLIP's towers and another vocabulary
        known = ", ".join(("clip", "metaclip_2", *DUAL_ENCODERS))
        raise ModelError(f"{folder / 'config.json'}: model_type is {kind!r}, which is not one of {known}")
    if kind == "metaclip_2":
        refuse_code(folder)
    text, vision = config.get("text_config") or {}, config.get("vision_config") or {}
    try:
        image = int(vision.get("image_size", 224))
        eos = int(text.get("eos_token_id", 49407))
        return Checkpoint(
            source=str(folder),
            text=_hf_sizes(text, 512, 12, 8, 2048),
            vision=_hf_sizes(vision, 768, 12, 12, 3072),
            vocabulary=int(text.get("vocab_size", 49408)),
            positions=int(text.get("max_position_embeddings", 77)),
            embedding=int(config.get("projection_dim", 512)),
            image=image,
            patch=int(vision.get("patch_size", 32)),
            eos=None if eos == 2 and kind == "clip" else eos,
            preprocess=read_preprocess(folder, image),
            state=floats(in_hugging_face_names(str(folder), _hf_weights(folder))),
            folder=folder,
            tokenizer="clip" if kind == "clip" else "library",
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder}: config.json or preprocessor_config.json is not a CLIP's ({error})") from None


def _hf_sizes(config: Mapping[str, Any], width: int, layers: int, heads: int, hidden: int) -> TowerSizes:
    return TowerSizes(
        width=int(config.get("hidden_size", width)),
        layers=int(config.get("num_hidden_layers", layers)),
        heads=int(config.get("num_attention_heads", heads)),
        hidden=int(config.get("intermediate_size", hidden)),
        activation=str(config.get("hidden_act", "quick_gelu")),
        eps=float(config.get("layer_norm_eps", 1e-5)),
    )


def _hf_weights(folder: Path) -> Weights:
    for stem in ("model.safetensors", "pytorch_model.bin"):
        if (folder / stem).is_file():
            return read_weights(folder / stem)
        index = folder / f"{stem}.index.json"
        if index.is_file():
            shards = sorted(set(read_json(index).get("weight_map", {}).values()))
            return {key: value for shard in shards for key, value in read_weights(folder / shard).items()}
    return read_weights(_only_weights(folder, "no model.safetensors or pytorch_model.bin"))


def _only_weights(folder: Path, missing: str) -> Path:
    """The one file in a folder that can be a model's weights."""
    files = [p for p in sorted(folder.iterdir()) if p.suffix in SAVED_ENDINGS and p.stem not in NO_WEIGHTS]
    if len(files) > 1:
        raise ModelError(f"{folder}: {missing}, and several files of weights; name one, as in {files[0]}")
    if not files:
        raise ModelError(f"{folder}: {missing}")
    return files[0]


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.txt", "*.model", "model*.safetensors", "pytorch_model*.bin", "open_clip*"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # the hub client raises many types; to the user they mean the same
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"model {name!r} is no local path and could not be fetched from the hub{nearest_model(name)}: {reason}"
        ) from None
