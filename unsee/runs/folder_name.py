"""The name of a run folder that nobody named."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from unsee.data.class_names import plain

LONGEST = 40  # characters of the list of classes


def folder_name(data: str, method: str, forget: Sequence[str], seed: int) -> str:
    """DATA-METHOD-CLASS+CLASS-seedS: another name for other data, methods, classes or seeds.

    data: a name or an absolute path, of which the last part is used. A list that is long, or has characters that do not
    belong in a file name, ends in a short hash of the whole of it.
    """
    return f"{_slug(Path(data).name) or 'data'}-{method}-{_classes(forget)}-seed{seed}"


def _classes(forget: Sequence[str]) -> str:
    names = sorted({plain(name).strip() for name in forget})
    text = "+".join(map(_slug, names))
    if len(text) <= LONGEST and all(_slug(name) == name.replace(" ", "-") for name in names):
        return text
    mark = hashlib.sha256("\n".join(names).encode(errors="surrogatepass")).hexdigest()[:6]
    cut = text[: LONGEST - len(mark) - 1]
    if len(cut) < len(text) and "+" in cut:
        cut = cut[: cut.rindex("+")]
    return f"{cut}-{mark}".lstrip("-")


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")
