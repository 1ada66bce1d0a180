"""What a training run is made of: one frozen record, and the variants of it that the ablation compares."""

from __future__ import annotations

from dataclasses import dataclass, replace

FORMS = ("plain", "denial", "denial", "denial", "denial", "denied kind", "mixed denial", "choice", "kind", "look")
"""Forms of designed contexts, drawn with equal weight; a form listed twice is drawn twice as often."""


@dataclass(frozen=True)
class Recipe:
    """Sizes, texts and schedule of one training run."""

    steps: int = 2600
    rate: float = 2.5e-3
    decay: float = 0.05
    width: int = 128
    layers: int = 3
    positions: int = 40
    """Tokens of a text, at most; the longest context and the longest name must fit together."""
    hidden: int = 1024
    """Units of the projection's hidden layer; 0: no projection is trained."""
    dropout: float = 0.25
    logit_scale: float = 20.0
    """Where the learned scale starts; it never exceeds 100."""
    fixed_scale: bool = False
    photos: int = 768
    """Labelled photos a step, drawn by source; many, as a photo costs far less than a text."""
    names: int = 256
    """Names a step behind one plain context, among them those of the photos."""
    descriptions: int = 32
    captions: int = 96
    contexts: int = 32
    """Designed contexts a step."""
    group: int = 16
    """Names behind each designed context."""
    pool: int = 40
    """Names a step that the designed contexts speak of, drawn uniformly from the vocabulary."""
    pool_photos: int = 4
    """Photos of each name of the pool."""
    templates: int = 8
    """How many plain contexts names are learned behind; many teach a tower to look past its context."""
    longer: float = 0.3
    """The smaller, the more names a context lists."""
    context_weight: float = 2.0
    """Weight of telling a photo's true texts from those that only their context rules out."""
    context_start: int = 500
    """The step from which that loss counts; names come first."""
    polish: int = 500
    """Steps after these, about a minute, that train the projection alone: photos are named better, texts stay."""
    polish_rate: float = 1e-3
    polish_photos: int = 1024
    polish_dropout: float = 0.1
    shares: str = "mini"
    """How often a labelled photo comes from each source: a key of SHARES_OF."""
    vocabulary: str = "all"
    """Names that labelled photos may have: "all", "cifar100" or "cifar10"."""
    without: str = ""
    """Names to leave out of all texts and photos, with a comma between them."""
    forms: tuple[str, ...] = FORMS


FINAL = Recipe()

CLIP_B16 = Recipe(
    steps=1200,
    rate=1e-3,
    width=256,
    layers=6,
    positions=48,
    hidden=0,
    dropout=0.0,
    logit_scale=50.0,
    photos=384,
    captions=96,
    descriptions=24,
    contexts=8,
    group=8,
    pool=16,
    pool_photos=3,
    context_start=240,
    polish=0,
    shares="clip",
)
"""On CLIP's image tower: no projection is trained (hidden=0), so the text tower learns all, and is larger. Its layers hold eight
times as many weights as `mini`'s, so a step reads fewer texts."""

SHARES = {
    "cifar100": 0.38,
    "cifar10": 0.24,
    "imagenet": 0.16,
    "tiny-imagenet": 0.14,
    "coco-guessed": 0.06,
    "flickr8k-guessed": 0.02,
    "cub200": 0.16,
}
"""How often a labelled photo comes from each source, not made to sum to 1."""
CLIP_SHARES = {"imagenet": 0.38, "cub200": 0.22, "cifar100": 0.22, "cifar10": 0.1, "tiny-imagenet": 0.08}
"""The same on CLIP's image tower: more often where there are more names to tell apart."""
SHARES_OF = {"mini": SHARES, "clip": CLIP_SHARES}
POLISH_SHARES = {**SHARES, "cifar10": 0.6}
"""The same while polishing, not yet made to sum to 1."""


def variants(steps: int) -> dict[str, Recipe]:
    """The ablation, every recipe at the same number of steps."""
    base = replace(FINAL, steps=steps, context_start=steps // 5, polish=0)
    no_contexts = replace(base, contexts=0)
    return {
        "base": base,
        "captions only": replace(no_contexts, names=0, descriptions=0),
        "captions and names": replace(no_contexts, descriptions=0),
        "captions, names, descriptions": no_contexts,
        "10 names": replace(base, vocabulary="cifar10"),
        "100 names": replace(base, vocabulary="cifar100"),
        "width 192": replace(base, width=192),
        "scale fixed at 60": replace(base, logit_scale=60.0, fixed_scale=True),
        "scale fixed at 20": replace(base, fixed_scale=True),
    }
