"""Models: `load_model` gives a black box that takes contexts and returns confidences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from unsee.errors import InputError, ModelError
from unsee.models.black_box import BlackBox, Bound, Metered
from unsee.models.families import check_precision
from unsee.models.features import FeatureCache

__all__ = ["BlackBox", "Bound", "FeatureCache", "Metered", "load_model"]


def load_model(
    name: str | Path,
    *,
    cache: FeatureCache | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
    key: str | None = None,
    insecure: bool = False,
    say: Callable[[str], None] | None = None,
) -> BlackBox:
    """The model of this name: `mini` (embedded), a Hugging Face id or folder, an OpenAI `.pt`, or OpenCLIP.

    Also a file of your own: `torch.save(model.state_dict(), FILE)` of any of these CLIPs.

    A Hugging Face folder is a CLIP, or another dual encoder that `transformers` knows: SigLIP, AltCLIP and others.
    Also a folder in the embedded model's format. An OpenCLIP weights file without its `open_clip_config.json` is
    named with its architecture: `ViT-B-16:FILE`. `threads` is how many cores ONNX Runtime may use for the embedded
    model's images (None: all of them); torch's threads are set for the whole process, with torch.set_num_threads.
    `http://…` or `https://…` is a model that `unsee serve` answers for; `key` is the key to it, which
    crosses a network in plain text only where insecure says so. `say` is told when it does not answer, and what a file
    of weights leaves open.
    """
    if not str(name).strip():
        raise InputError("no model was named")
    if threads is not None and threads < 1:
        raise InputError(f"threads must be at least 1, not {threads}")
    check_precision(dtype)
    if str(name).startswith(("http://", "https://")):
        from unsee.models.remote.remote_model import RemoteModel

        return RemoteModel(str(name), key, say=say, insecure=insecure)
    from unsee.models.fast.checkpoints import find_folder  # here, because importing torch takes seconds
    from unsee.models.fast.clip import TORCH_DTYPES, check_device, load_clip
    from unsee.models.fast.embedded import load_mini
    from unsee.models.library.dual_encoder import DUAL_ENCODERS, load_dual_encoder, model_type
    from unsee.models.library.open_clip_models import load_open_clip, needs_open_clip

    if str(name) == "mini":
        return load_mini(cache, threads=threads, device=device)
    if (Path(name) / "image.onnx").is_file():  # another model in the embedded one's format
        return load_mini(cache, Path(name), str(name), threads, device)
    try:
        check_device(device, dtype)
        folder = find_folder(str(name))
        if folder is not None and model_type(folder) in DUAL_ENCODERS:
            return load_dual_encoder(str(name), folder, cache, device, TORCH_DTYPES[dtype])
        if folder is not None and needs_open_clip(folder):
            return load_open_clip(str(name), folder, cache, device, TORCH_DTYPES[dtype])
        return load_clip(str(name), cache=cache, device=device, dtype=dtype, folder=folder, say=say)
    except MemoryError:
        raise ModelError(f"model {name}: not enough memory to load it") from None
