"""Features of the frozen image backbone, computed once and kept in chunks, so that a stopped run can go on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image

from training import data
from training.image_graph import SIDE, save_feature_graph

CHUNK = 1000
BATCH = 16


def resized(pixels: data.Pixels, side: int = SIDE) -> data.Pixels:
    """Return the pictures at the tower's size, (n, side, side, 3), by Pillow's bicubic rule."""
    bicubic = Image.Resampling.BICUBIC
    return np.stack([np.asarray(Image.fromarray(p).resize((side, side), bicubic)) for p in pixels])


def open_graph(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """Open an ONNX file on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run_graph(session: onnxruntime.InferenceSession, pixels: data.Pixels) -> NDArray[np.float32]:
    """Run small pictures (n, 32, 32, 3) through a graph; the next batch is resized while one is computed."""
    starts = range(0, len(pixels), BATCH)
    with ThreadPoolExecutor(1) as pool:
        batches = pool.map(lambda i: resized(pixels[i : i + BATCH]), starts)
        return np.concatenate([session.run(None, {"pixels": b})[0] for b in batches])


def extract(name: str, pixels: data.Pixels, cache: Path, threads: int = 2) -> NDArray[np.float16]:
    """Return features (n, FEATURES) of the pictures, from the cache where it has them."""
    cache.mkdir(parents=True, exist_ok=True)
    graph = cache / "features.onnx"
    if not graph.exists():
        save_feature_graph(graph)
    session: onnxruntime.InferenceSession | None = None
    chunks = []
    for start in range(0, len(pixels), CHUNK):
        path = cache / f"{name}-{start:05d}.npy"
        if not path.exists():
            session = session or open_graph(graph, threads)
            features = run_graph(session, pixels[start : start + CHUNK]).astype(np.float16)
            part = path.with_suffix(".part.npy")
            np.save(part, features)
            part.rename(path)
            print(f"features: {name} {start + CHUNK}", flush=True)
        chunks.append(np.load(path))
    return np.concatenate(chunks)


def extract_all(folder: Path, cache: Path, seed: int, threads: int = 2) -> None:
    """Fill the cache with all that training needs: plain pictures and one altered version of each training picture."""
    for sheet in (*data.TRAIN_SHEETS, data.CHOICE_SHEET):
        extract(sheet, data.load_sheet(folder, sheet)[0], cache, threads)
    for sheet in data.TRAIN_SHEETS:
        extract(f"{sheet}-altered", data.draw_altered(folder, sheet, seed)[0], cache, threads)
