"""What ImageNet's classes are called: a name for each synset, read from a file beside the images.

| file                      | a class                        | where it comes from                                   |
|---------------------------|--------------------------------|-------------------------------------------------------|
| classnames.txt            | `n01440764 tench`              | linked in CoOp's DATASETS.md: OpenAI's names for CLIP |
| LOC_synset_mapping.txt    | `n01440764 tench, Tinca tinca` | in Kaggle's download of ImageNet: WordNet's names     |
| imagenet_class_index.json | `"0": ["n01440764", "tench"]`  | Keras: the first of WordNet's names                   |

None of them comes with the package. The first file that is there is used, so CLIP's names win over WordNet's.
A class goes by the first of its comma-separated names. Where two share it, each of
them takes another of its names that is no class's first name; what is still shared gets the synset behind it: maillot
and tank suit, crane (n02012849) and crane (n03126707). The synset is for tables; prompts leave it out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from unsee.data.texts import read_text
from unsee.errors import DataError

NAME_FILES = ("classnames.txt", "LOC_synset_mapping.txt", "imagenet_class_index.json")
COOP = "CLIP's names, linked in DATASETS.md of https://github.com/KaiyangZhou/CoOp"
SYNSET = re.compile(r"n\d{8}")
Synonyms = Mapping[str, tuple[str, ...]]


def read_synset_names(folder: Path) -> dict[str, str]:
    """Synset -> class name, all different, in the order of the synsets."""
    path = next((folder / name for name in NAME_FILES if (folder / name).is_file()), None)
    if path is None:
        raise DataError(
            f"{folder}: no file with ImageNet's class names; looked for {', '.join(NAME_FILES)}. Put classnames.txt "
            f"there ({COOP}), or Kaggle's LOC_synset_mapping.txt, which has WordNet's names"
        )
    text = read_text(path)
    return distinct(_from_json(path, text) if path.suffix == ".json" else _from_lines(path, text))


def distinct(synonyms: Synonyms) -> dict[str, str]:
    """One name a synset, no two alike (the rule stands above)."""
    shared = Counter(names[0] for names in synonyms.values())
    taken, left = set(shared), Counter(shared)
    chosen = {synset: synonyms[synset][0] for synset in sorted(synonyms)}
    for synset, first in chosen.items():
        other = next((name for name in synonyms[synset][1:] if name not in taken), None)
        if shared[first] > 1 and other is not None:
            chosen[synset] = other
            taken.add(other)
            left[first] -= 1
    for synset, name in chosen.items():
        if left[name] > 1:
            chosen[synset] = f"{name} ({synset})"
    return chosen


def _from_lines(path: Path, text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line, content in enumerate(text.splitlines(), 1):
        synset, _, rest = content.strip().partition(" ")
        if synset:
            _add(found, f"{path}, line {line}", synset, rest)
    return _some(path, found)


def _from_json(path: Path, text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    try:
        content = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path}: damaged ({error})") from None
    if not isinstance(content, dict):
        raise DataError(f'{path}: must be like {{"0": ["n01440764", "tench"]}}')
    for number, pair in content.items():
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(item, str) for item in pair):
            raise DataError(f'{path}, entry {number!r}: must be like ["n01440764", "tench"]')
        _add(found, f"{path}, entry {number!r}", pair[0], pair[1])
    return _some(path, found)


def _add(found: dict[str, tuple[str, ...]], where: str, synset: str, names: str) -> None:
    own = tuple(filter(None, (name.strip() for name in names.replace("_", " ").split(","))))
    if not SYNSET.fullmatch(synset) or not own:
        raise DataError(f"{where}: wanted a synset and its name, like 'n01440764 tench', found {synset!r} {names!r}")
    if synset in found:
        raise DataError(f"{where}: {synset} came before")
    found[synset] = own


def _some(path: Path, found: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    if not found:
        raise DataError(f"{path}: empty")
    return found
