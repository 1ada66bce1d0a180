"""The names that constructed texts may use: what each one means, its synonyms, its gloss and its kinds.

Names come from CIFAR-10, CIFAR-100, ImageNet and COCO's objects. WordNet says which name is a kind of which.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training import photos
from training.repository import Repository
from training.wordnet import WordNet

SENSES = {
    "aquarium fish": ("fish", "vertebrate"),
    "dolphin": ("dolphin", "mammal"),
    "flatfish": ("flatfish", "vertebrate"),
    "whale": ("whale", "mammal"),
    "maple tree": ("maple", "tree"),
    "oak tree": ("oak", "tree"),
    "palm tree": ("palm", "tree"),
    "pine tree": ("pine", "tree"),
    "willow tree": ("willow", "tree"),
    "pickup truck": ("pickup", "vehicle"),
    "bowl": ("bowl", "vessel"),
    "can": ("can", "container"),
    "cup": ("cup", "container"),
    "crab": ("crab", "crustacean"),
    "lobster": ("lobster", "crustacean"),
    "keyboard": ("keyboard", "device"),
    "lamp": ("lamp", "artifact"),
    "mouse": ("mouse", "rodent"),
    "mushroom": ("mushroom", "fungus"),
    "orange": ("orange", "fruit"),
    "pear": ("pear", "fruit"),
    "apple": ("apple", "fruit"),
    "plain": ("plain", "land"),
    "plate": ("plate", "tableware"),
    "ray": ("ray", "vertebrate"),
    "trout": ("trout", "vertebrate"),
    "seal": ("seal", "mammal"),
    "shrew": ("shrew", "mammal"),
    "table": ("table", "furniture"),
    "tank": ("tank", "vehicle"),
    "television": ("television", "equipment"),
    "train": ("train", "public transport"),
    "turtle": ("turtle", "reptile"),
    "wardrobe": ("wardrobe", "furniture"),
    "worm": ("worm", "animal"),
    "rose": ("rose", "plant"),
    "tulip": ("tulip", "plant"),
    "rocket": ("rocket", "vehicle"),
    "leopard": ("leopard", "animal"),
    "lion": ("lion", "animal"),
    "tiger": ("tiger", "feline"),
    "fox": ("fox", "animal"),
    "wolf": ("wolf", "animal"),
    "possum": ("possum", "animal"),
    "raccoon": ("raccoon", "animal"),
    "beaver": ("beaver", "animal"),
    "otter": ("otter", "animal"),
    "skunk": ("skunk", "animal"),
    "rabbit": ("rabbit", "animal"),
    "elephant": ("elephant", "animal"),
    "squirrel": ("squirrel", "animal"),
    "hamster": ("hamster", "animal"),
    "dog": ("dog", "animal"),
    "cat": ("cat", "animal"),
    "bird": ("bird", "animal"),
    "frog": ("frog", "animal"),
    "horse": ("horse", "animal"),
    "deer": ("deer", "animal"),
    "truck": ("truck", "vehicle"),
    "sweet pepper": ("sweet pepper", "fruit"),
    "bed": ("bed", "furniture"),
    "couch": ("couch", "furniture"),
    "chair": ("chair", "furniture"),
    "house": ("house", "building"),
    "castle": ("castle", "building"),
    "bridge": ("bridge", "structure"),
    "clock": ("clock", "device"),
    "telephone": ("telephone", "equipment"),
    "bottle": ("bottle", "vessel"),
    "boy": ("boy", "person"),
    "girl": ("girl", "person"),
    "man": ("man", "person"),
    "woman": ("woman", "person"),
    "baby": ("baby", "person"),
    "snake": ("snake", "reptile"),
    "bat": ("bat", "artifact"),
    "kite": ("kite", "artifact"),
    "bear": ("bear", "animal"),
    "cow": ("cow", "animal"),
    "potted plant": ("plant", "organism"),
    "dining table": ("dining table", "furniture"),
    "sports ball": ("ball", "game equipment"),
    "wine glass": ("wineglass", "container"),
    "hot dog": ("hot dog", "food"),
    "donut": ("doughnut", "food"),
    "tv": ("television", "equipment"),
    "remote": ("remote control", "device"),
    "cell phone": ("cellular telephone", "equipment"),
    "hair drier": ("hand blower", "device"),
    "teddy bear": ("teddy", "artifact"),
}
"""Where the most common sense of a noun is not what the photos show: noun, and what it is a kind of."""

NARROW = frozenset({"aquarium fish", "potted plant"})
"""Names that stand for less than their synset: nothing else is a kind of them."""

TOO_ABSTRACT = frozenset(
    [
        "entity",
        "physical entity",
        "object",
        "whole",
        "abstraction",
        "matter",
        "artifact",
        "instrumentality",
        "thing",
        "unit",
        "causal agent",
        "psychological feature",
        "attribute",
        "measure",
        "group",
        "relation",
        "part",
        "substance",
        "physical object",
        "living thing",
        "organism",
        "attribute",
        "cognition",
        "content",
        "event",
        "state",
        "shape",
        "way",
        "covering",
        "structure",
        "commodity",
        "consumer goods",
        "natural object",
    ]
)


@dataclass(frozen=True)
class Vocabulary:
    """Names with their meaning; `isa[i, j]` says that name i is name j or a kind of it."""

    names: tuple[str, ...]
    synonyms: tuple[tuple[str, ...], ...]
    glosses: tuple[str, ...]
    isa: NDArray[np.bool_]  # (names, names)
    kinds: tuple[str, ...]
    kind_of: NDArray[np.bool_]  # (names, kinds)
    imagenet: NDArray[np.int64]
    """The name of each of ImageNet's 1,000 classes."""

    def index(self, name: str) -> int:
        """The number of a name."""
        return self.names.index(name)


def load_vocabulary(sources: Path, species: Sequence[str] = ()) -> Vocabulary:
    """Collect the names and look them up in WordNet. species: birds to add, some of which WordNet does not know."""
    wordnet = WordNet(sources / "wordnet")
    meaning: dict[str, str | None] = {}
    for name in (*photos.CIFAR10_NAMES, *cifar100_names(sources), *coco_object_names(sources)):
        noun, below = SENSES.get(name, (name, None))
        meaning.setdefault(name, wordnet.find(noun, below) or wordnet.find(noun))
    words = _imagenet_words(sources)
    imagenet_names = []
    for identity, name in zip(photos.imagenet_ids(sources), read_imagenet_names(sources), strict=True):
        name = _clean(name)
        synset = wordnet.find_synonyms(words[identity])
        if name in meaning and meaning[name] != synset:
            name = name if _related(wordnet, meaning[name], synset) else _clean(words[identity][0])
        meaning.setdefault(name, synset)
        imagenet_names.append(name)
    added = [name for name in species if name not in meaning]
    meaning |= {name: _bird(wordnet, name) for name in added}
    names = tuple(meaning)
    number = {name: i for i, name in enumerate(names)}
    above = [wordnet.ancestors(synset) if synset else frozenset() for synset in meaning.values()]
    isa = np.array([[synset in above[i] for synset in meaning.values()] for i in range(len(names))])
    for name in (*NARROW, *added):
        isa[:, number[name]] = False
    np.fill_diagonal(isa, True)
    kinds = _kinds(wordnet, above)
    synonyms = tuple(
        tuple(_clean(w) for w in wordnet.synsets[s].lemmas if _clean(w) != n) if s else () for n, s in meaning.items()
    )
    glosses = tuple(wordnet.synsets[s].gloss if s else "" for s in meaning.values())
    return Vocabulary(
        names=names,
        synonyms=synonyms,
        glosses=glosses,
        isa=isa,
        kinds=tuple(wordnet.synsets[k].lemmas[0] for k in kinds),
        kind_of=np.array([[k in a for k in kinds] for a in above]),
        imagenet=np.array([number[name] for name in imagenet_names]),
    )


def cifar100_names(sources: Path) -> list[str]:
    """CIFAR-100's names, with spaces."""
    keys = photos.cifar100(sources).keys
    return sorted({key.split("/")[0].replace("_", " ") for key in keys})


def coco_object_names(sources: Path) -> list[str]:
    """COCO's 80 objects."""
    return sorted({name for names in photos.coco_objects(sources).values() for name in names})


def read_imagenet_names(sources: Path) -> tuple[str, ...]:
    """Curated names of ImageNet's classes, read from open_clip's source without running it."""
    tree = ast.parse((sources / "imagenet_names.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "IMAGENET_CLASSNAMES":
            return tuple(ast.literal_eval(node.value))
    raise ValueError("imagenet_names.py has no IMAGENET_CLASSNAMES")


def _bird(wordnet: WordNet, name: str) -> str | None:
    """The synset of a bird: its own, that of its last word (albatross), or that of all birds."""
    for noun in (name, name.replace(" ", "-", 1), name.split()[-1]):
        found = wordnet.find(noun, "bird")
        if found is not None:
            return found
    return wordnet.find("bird", "animal")


def _clean(name: str) -> str:
    return name.split(" (")[0].lower()


def _related(wordnet: WordNet, a: str | None, b: str | None) -> bool:
    if a is None or b is None:
        return True
    return a in wordnet.ancestors(b) or b in wordnet.ancestors(a)


def _imagenet_words(sources: Path) -> dict[str, list[str]]:
    text = Repository(sources / "tiny-imagenet").text("tiny-imagenet-200/words.txt")
    rows = (line.partition("\t") for line in text.splitlines())
    return {identity: lemmas.split(", ") for identity, _, lemmas in rows}


def _kinds(wordnet: WordNet, above: list[frozenset[str]]) -> list[str]:
    """Synsets that several names are a kind of, without the abstract ones."""
    counts = Counter(synset for ancestors in above for synset in ancestors)
    wanted = [s for s, n in counts.items() if n >= 5 and not TOO_ABSTRACT & set(wordnet.synsets[s].lemmas)]
    return sorted(wanted)
