"""Keeps a trained tower as one small file: what training changed, without the frozen encoder that all towers share.

`towers/` holds other towers than the shipped one, so that a claim about a method can be checked on more than one.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from training.clip_image import place_tower
from training.image_graph import Array, save_image_graph
from unsee.models.families import EMBEDDED

TOWERS = Path(__file__).parent / "towers"
LARGEST = 20_000_000
"""Bytes of a file in it."""


def pack(folder: Path, file: Path) -> None:
    """Write the text tower, the projection, the configuration and the card of a model folder to one file."""
    state = {f"text.{key}": value for key, value in load_file(folder / "text.safetensors").items()}
    weights = projection(folder / "image.onnx")
    shared = projection(EMBEDDED / "image.onnx")
    for name in ("mean", "components"):
        if not np.array_equal(weights.pop(name), shared[name]):
            raise ValueError(f"{folder}: its {name} differ from those of the shipped model")
    state |= {
        f"projection.{key}": value.astype(np.float16 if value.ndim > 1 else np.float32)
        for key, value in weights.items()
    }
    facts = {name: (folder / f"{name}.json").read_text() for name in ("config", "card")}
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(state, file, metadata=facts)


def unpack(file: Path, folder: Path) -> None:
    """Write the model folder of a packed tower; `unsee --model FOLDER` takes it."""
    state = load_file(file)
    folder.mkdir(parents=True, exist_ok=True)
    with safe_open(file, framework="np") as opened:
        facts = opened.metadata()
    text = {k.removeprefix("text."): v for k, v in state.items() if k.startswith("text.")}
    save_file(text, folder / "text.safetensors", metadata={"format": "pt"})
    weights = {k.removeprefix("projection."): v.astype(np.float32) for k, v in state.items() if k.startswith("proj")}
    shared = projection(EMBEDDED / "image.onnx")
    save_image_graph(folder / "image.onnx", {**weights, "mean": shared["mean"], "components": shared["components"]})
    shutil.copy(EMBEDDED / "tokenizer.json", folder / "tokenizer.json")
    for name, content in facts.items():
        (folder / f"{name}.json").write_text(json.dumps(json.loads(content), indent=2) + "\n")


def pack_text(folder: Path, file: Path) -> None:
    """Write the text tower, tokenizer, configuration and card of a folder whose image tower is not ours to one file."""
    facts = {name: (folder / f"{name}.json").read_text() for name in ("config", "card", "tokenizer")}
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(load_file(folder / "text.safetensors"), file, metadata=facts)
    if file.stat().st_size > LARGEST:
        file.unlink()
        raise ValueError(f"{folder}: its text tower takes more than {LARGEST:,} bytes")


def unpack_text(file: Path, folder: Path, sources: Path) -> None:
    """Write the model folder of such a file; the image tower comes from the sources."""
    folder.mkdir(parents=True, exist_ok=True)
    place_tower(folder, sources)
    save_file(load_file(file), folder / "text.safetensors", metadata={"format": "pt"})
    with safe_open(file, framework="np") as opened:
        for name, content in opened.metadata().items():
            (folder / f"{name}.json").write_text(content)


def projection(path: Path) -> dict[str, Array]:
    """What stands behind the frozen encoder in an image tower's graph."""
    graph = onnx.load(str(path)).graph
    stored = {tensor.name: numpy_helper.to_array(tensor).astype(np.float32) for tensor in graph.initializer}
    cast = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Cast"}
    after = [node for node in graph.node if node.op_type in ("Sub", "MatMul", "Add")]
    last_sub = max(i for i, node in enumerate(after) if node.op_type == "Sub")
    given = [cast.get(name, name) for node in after[last_sub:] for name in node.input]
    found = [stored[name] for name in given if name in stored]
    mean, components, hidden, bias, out, straight = found
    weights = {"components": components, "hidden.weight": hidden, "out.weight": out, "linear.weight": straight}
    turned = {name: np.ascontiguousarray(weight.T) for name, weight in weights.items()}  # safetensors wants it so
    return {"mean": mean, "hidden.bias": bias, **turned}
