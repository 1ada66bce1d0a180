"""EfficientNet-lite1, `mini`'s image encoder: how photos are prepared, asked and exported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image

from training.image_graph import FEATURES, SIDE, save_feature_graph, save_image_graph

if TYPE_CHECKING:
    from training.bank import Bank
    from training.features import Encode
    from training.fit import Model

__all__ = ["FEATURES", "export_image", "open_encoder", "prepare"]


def prepare(picture: Image.Image) -> NDArray[np.uint8]:
    """RGB pixels (SIDE, SIDE, 3), squeezed by Pillow's bicubic rule, as the package prepares a photo."""
    return np.asarray(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def open_encoder(sources: Path, cache: Path, threads: int) -> Encode:
    """The frozen encoder, written to the cache if it is not there yet."""
    graph = cache / "encoder.onnx"
    if not graph.exists():
        save_feature_graph(graph)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])

    def encode(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = session.run(None, {"pixels": pixels})[0]
        return found

    return encode


def export_image(folder: Path, sources: Path, model: Model, bank: Bank) -> dict[str, object]:
    """Write the encoder with components and projection as one graph; return its part of config.json."""
    if bank.mean is None or bank.components is None:
        raise ValueError("this bank has no principal components")
    weights = {k: v.detach().numpy() for k, v in model.projection.state_dict().items()}
    save_image_graph(
        folder / "image.onnx", {**weights, "mean": bank.mean.numpy(), "components": bank.components.numpy()}
    )
    return {
        "file": "image.onnx",
        "input": "pixels",
        "output": "embeddings",
        "dtype": "uint8",
        "layout": "NHWC",
        "colour": "RGB",
        "side": SIDE,
        "resize": "squeeze to side x side, Pillow bicubic; no cropping",
        "scaling": "inside the graph: (x - 127) / 128",
    }
