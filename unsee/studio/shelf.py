"""Data sets and models that the page looks at: opened once, a few kept, and asked by one request at a time."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from PIL import Image

from unsee.data.data_set import Data
from unsee.data.images import Images, as_rgb
from unsee.errors import InputError, RunError
from unsee.models.black_box import BlackBox
from unsee.runs.records import ConfigRecord

T = TypeVar("T")
OpenData = Callable[[str, int | None, Mapping[str, str] | None], Data]
OpenModel = Callable[[str], BlackBox]
SIDE = 160  # pixels of a thumbnail


class Kept(Generic[T]):
    """The last few things that were made, by key. Requests come in threads: each is made once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[Hashable, T] = OrderedDict()
        self._making = threading.RLock()

    def get_or(self, key: Hashable, make: Callable[[], T]) -> T:
        """The thing of this key, made now if it is not there."""
        with self._making:
            found = self._found[key] if key in self._found else make()
            self._found[key] = found
            self._found.move_to_end(key)
            if len(self._found) > self._most:
                self._found.popitem(last=False)
            return found


class Shelf:
    """Opened data and models. A model is asked while `asking` is held: two requests would only wait for each other."""

    def __init__(self, open_data: OpenData, open_model: OpenModel) -> None:
        self._open_data, self._open_model = open_data, open_model
        self._data: Kept[Data] = Kept(4)
        self._readable: Kept[Data] = Kept(4)  # of runs that left images out
        self._models: Kept[BlackBox] = Kept(2)
        self.asking = threading.RLock()

    def data(self, name: str, seed: int | None = 0, names: Mapping[str, str] | None = None) -> Data:
        """The data set of this name."""
        key = (name, seed, *sorted((names or {}).items()))
        return self._data.get_or(key, lambda: self._open_data(name, seed, names))

    def model(self, name: str) -> BlackBox:
        """The model of this name; hold `asking`."""
        return self._models.get_or(name, lambda: self._open_model(name))

    def data_of(self, config: ConfigRecord) -> Data:
        """The data of a run; refused if images were added, removed or renamed since."""
        found = self.data(config.data.name, config.data.split_seed, config.data.names or None)
        if config.settings.skip_bad_images:
            found = self._readable.get_or(found.listing, lambda: replace(found, test=found.test.readable()[0]))
        if found.listing != config.data.fingerprint:
            raise RunError(f"the images of {config.data.name} are no longer those of this run, so none are shown")
        return found

    def images_of(self, config: ConfigRecord, part: str) -> Images:
        """Images of a run: the test images in the order of its answers, or those it may tune on."""
        data = self.data_of(config)
        return data.train if part == "train" else data.test

    def model_of(self, config: ConfigRecord) -> BlackBox:
        """The model of a run, if it is on this machine: elsewhere every answer is an image query; hold `asking`."""
        if config.model.address is not None:
            raise InputError(
                f"the model answers at {config.model.address}, where every answer is a query; none is asked for a look"
            )
        found = self.model(config.model.name)
        if found.card.fingerprint != config.model.fingerprint:
            raise RunError(f"{config.model.name} is no longer the model that this run was tuned on")
        return found


def thumbnail(images: Images, row: int) -> tuple[bytes, str]:
    """One image, small, and its media type."""
    if not 0 <= row < len(images):
        raise InputError(f"there is no image {row}")
    image = as_rgb(images.read(row))
    small = max(image.size) <= SIDE
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "PNG" if small else "JPEG", **({} if small else {"quality": 85}))
    return out.getvalue(), "image/png" if small else "image/jpeg"
