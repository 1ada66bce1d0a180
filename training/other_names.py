"""Rewrites the audit's list of other names from WordNet's lemmas: `python -m training.other_names SOURCES`.

Entries that were chosen by hand (`chosen` in the file, for the data sets of the paper) stay as they are; published audits used
them. The same sources give the same bytes.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from training import photos
from training.vocabulary import SENSES, cifar100_names, coco_object_names, read_imagenet_names
from training.wordnet import WordNet
from unsee.data.other_names import LIST

MOST = 4  # synonyms of a class, and kinds of it
CLOTHES = (
    *(
        "bag",
        "belt",
        "blazer",
        "blouse",
        "boot",
        "cap",
        "cardigan",
        "coat",
        "dress",
        "glove",
        "handbag",
        "hat",
        "hoodie",
    ),
    *(
        "jacket",
        "jeans",
        "jumper",
        "leggings",
        "outwear",
        "overcoat",
        "pajama",
        "pants",
        "polo",
        "pullover",
        "raincoat",
    ),
    *("sandal", "scarf", "shirt", "shoe", "shoes", "shorts", "skirt", "sneaker", "sock", "suit", "sweater", "t-shirt"),
    *(
        "tie",
        "top",
        "trousers",
        "underwear",
        "undershirt",
        "vest",
        "watch",
        "sunglasses",
        "backpack",
        "umbrella",
        "purse",
    ),
)
MEANT = {
    **dict.fromkeys(CLOTHES, "artifact"),
    "top": "garment",
    "suit": "garment",
    "polo": "garment",
    "tie": "garment",
    "pants": "garment",
}
"""What the sense of a noun must be a kind of, where its first sense may be another thing."""
NEAR: dict[str, tuple[str, ...]] = {
    "hat": ("cap",),
    "cap": ("hat",),
    "shoe": ("sneaker", "boot"),
    "shoes": ("sneakers", "boots"),
    "shirt": ("blouse", "t-shirt"),
    "t-shirt": ("tee", "shirt"),
    "pants": ("trousers", "jeans"),
    "longsleeve": ("shirt", "sweater"),
    "outwear": ("jacket", "coat"),
    "jacket": ("coat",),
    "coat": ("jacket",),
    "sweater": ("jumper",),
    "hoodie": ("sweatshirt",),
    "couch": ("settee",),
    "cell phone": ("smartphone", "mobile phone"),
    "bag": ("purse",),
    "mug": ("cup",),
    "cup": ("mug",),
    "boat": ("ship",),
    "donut": ("doughnut",),
}
"""Everyday words for the same things that WordNet has beside the class, neither as a synonym nor below it."""


def other_names(sources: Path, chosen: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
    """Other names by class: those chosen by hand, and for all other everyday names what WordNet has."""
    wordnet, found = WordNet(sources / "wordnet"), dict(chosen)
    below = _children(wordnet)
    often = _counts(sources / "wordnet" / "index.sense")
    for name in _everyday(sources):
        if name in chosen:
            continue
        noun, meant = SENSES.get(name, (name, MEANT.get(name)))
        synset = wordnet.find(noun, meant) or wordnet.find(noun.removesuffix("s"), meant) or wordnet.find(noun)
        entry: dict[str, list[str]] = {"synonyms": [], "kinds": []}
        if synset is not None:
            entry["synonyms"] = _usable(wordnet.synsets[synset].lemmas, name)[:MOST]
            kinds = sorted(below[synset], key=lambda o: (-often.get(o, 0), len(wordnet.synsets[o].lemmas[0]), o))
            words = [word for o in kinds for word in _usable(wordnet.synsets[o].lemmas[:1], name)]
            entry["kinds"] = [word for word in dict.fromkeys(words) if word not in entry["synonyms"]][:MOST]
        near = [word for word in NEAR.get(name, ()) if word not in entry["synonyms"]]
        if near or entry["synonyms"] or entry["kinds"]:
            found[name] = ({"near": near} if near else {}) | entry
    return dict(sorted(found.items()))


def _everyday(sources: Path) -> list[str]:
    """Names of things that people have photos of: those of the data sets that `mini` was trained on, and clothes."""
    imagenet = [name.split(" (")[0].lower() for name in read_imagenet_names(sources)]
    sets = (photos.CIFAR10_NAMES, cifar100_names(sources), coco_object_names(sources), imagenet, CLOTHES, NEAR)
    return sorted({name for names in sets for name in names})


def _children(wordnet: WordNet) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for offset, synset in wordnet.synsets.items():
        for parent in synset.parents:
            found[parent].append(offset)
    return found


def _counts(path: Path) -> dict[str, int]:
    """How often each noun synset occurs in WordNet's tagged texts."""
    found: dict[str, int] = defaultdict(int)
    for line in path.read_text(encoding="latin-1").splitlines():
        key, offset, _, count = line.split()
        if "%1:" in key:
            found[offset] += int(count)
    return found


def _usable(lemmas: tuple[str, ...], name: str) -> list[str]:
    """Lemmas that are other words than the name: in small letters, of one or two words, not containing it."""
    return [
        lemma
        for lemma in lemmas
        if lemma == lemma.lower() and lemma.count(" ") <= 1 and name not in lemma and lemma not in name
    ]


def write(sources: Path, path: Path = LIST) -> None:
    """Rewrites the list, one class per line."""
    old = json.loads(path.read_text(encoding="utf-8"))
    chosen = {name: old["names"][name] for name in old.get("chosen", old["names"])}
    head = {
        "about": "Other names of everyday classes: synonyms, words for the same things (near), and a few kinds of each "
        "(hyponyms), all single nouns or pairs of words.",
        "source": old["source"].removesuffix(SINCE) + SINCE,
        "chosen": sorted(chosen),
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in other_names(sources, chosen).items()]
    start = json.dumps(head, indent=1).removesuffix("\n}")
    path.write_text(start + ',\n "names": {\n' + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")


SINCE = (
    " Names that are not in `chosen`: WordNet 3.1, Princeton University (WordNet License), by training/other_names.py."
)

if __name__ == "__main__":
    write(Path(sys.argv[1]))
