"""Reads weights files safely: safetensors, torch state dicts and TorchScript archives; no code in them is run."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from unsee.errors import ModelError

Weights = dict[str, Tensor]
WRAPPINGS = ("state_dict", "model_state_dict", "model", "module")  # where training loops' checkpoints keep weights


def read_weights(path: Path) -> Weights:
    """Reads the tensors of a file; no code in it is run."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():  # torch warns that these formats are old
            warnings.simplefilter("ignore")
            if _is_torchscript(path):
                return _torchscript(path)
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except pickle.UnpicklingError:
        raise ModelError(
            f"{path}: holds more than weights (or is damaged); it was not loaded. If you trust it, load it and save "
            "the weights alone: torch.save(model.state_dict(), FILE)"
        ) from None
    except Exception as error:  # readers raise all types on a damaged file
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{path}: truncated or not a weights file ({reason[:160]})") from None
    if isinstance(loaded, dict):
        loaded = next((loaded[name] for name in WRAPPINGS if isinstance(loaded.get(name), dict)), loaded)
    if not isinstance(loaded, dict) or not all(isinstance(v, Tensor) for v in loaded.values()):
        raise ModelError(f"{path}: not a state dict of tensors")
    return {str(key).removeprefix("module."): value for key, value in loaded.items()}


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("constants.pkl") or "/code/" in name for name in archive.namelist())


def _torchscript(path: Path) -> Weights:
    """The tensors of a TorchScript archive by their dotted names; its code is not read."""
    with zipfile.ZipFile(path) as archive:
        root = next(name for name in archive.namelist() if name.endswith("/data.pkl")).removesuffix("data.pkl")
        with archive.open(f"{root}data.pkl") as tree:
            return dict(_named(_Tree(tree, archive, root).load(), ""))


class _Part:
    """A module of an archive; only its attributes are kept."""


class _Tree(pickle.Unpickler):
    """Reads the object tree of an archive; whatever is not a tensor or a container is refused."""

    def __init__(self, tree: IO[bytes], archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(tree)
        self._archive = archive
        self._root = root

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "__torch__":
            return _Part
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _strided
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch.jit._pickle":  # typed lists, which hold no weights
            return _nothing
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Tensor:
        _, dtype, key, _, count = pid
        data = bytearray(self._archive.read(f"{self._root}data/{key}"))
        return torch.frombuffer(data, dtype=dtype, count=count) if count else torch.empty(0, dtype=dtype)


_STORAGES = {
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "BoolStorage": torch.bool,
}


def _strided(storage: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object) -> Tensor:
    return storage.as_strided(size, stride, offset)


def _nothing(*_: object) -> None:
    return None


def _named(part: object, prefix: str) -> Iterable[tuple[str, Tensor]]:
    for name, value in vars(part).items():
        if isinstance(value, Tensor):
            yield prefix + name, value
        elif isinstance(value, _Part):
            yield from _named(value, f"{prefix}{name}.")


def floats(state: Weights) -> Weights:
    """The weights in float32, copied so that memory is aligned and sums are equal to the last bit for every format."""
    return {k: v.to(torch.float32, copy=True) if v.is_floating_point() else v for k, v in state.items()}
