"""Every method, by name: what it is, what it sees of the model, what it costs, and its settings.

The rows of the paper's tables, and a few more. A method that asks the black box is given as many image queries as the
paper's method has; one that sees more than answers follows its own schedule. Steps and rates that no paper states were
chosen on held-out photos (`benchmarks/choose_sizes.py`; the log is results/choose-sizes.csv).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unsee.settings import Value

REFERENCE = "lcs"  # the method whose number of image queries the others are given


@dataclass(frozen=True)
class Method:
    """One method of the tables."""

    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # in which it differs from the preset
    sees: str = "confidences"  # of the model, beyond its card
    own_schedule: bool = False  # its iterations are its own, not the preset's
    planned_steps: bool = False  # its step sizes depend on how many steps are planned
    paper: Mapping[str, Any] = field(default_factory=dict)  # in which preset `paper` differs from these settings
    epochs: Mapping[int, int] = field(default_factory=dict)  # at most so many shots: passes over them, in batches

    @property
    def tunes_prompt(self) -> bool:
        return self.settings.get("parametrization") != "none"

    @property
    def trains_weights(self) -> bool:
        return self.sees in ("weights", "nothing")

    @property
    def untuned(self) -> bool:
        """Whether there is nothing to tune or train: a rule."""
        return self.settings.get("iterations") == 1


_SLOPE: dict[str, Any] = {"parametrization": "vanilla", "origin": "a photo of a"}
_COOP = _SLOPE | {"search": "gradient", "population": 1, "iterations": 800, "rate": 0.3}
_ALL_SHOTS = 10**9
# As CoOp's configuration for ViT-B/16 has it, and its paper the epochs.
_COOP_OWN = {"batch": 32, "views": 16, "optimizer": "sgd", "rate": 0.002, "rate_unit": "absolute"}
_COOP_EPOCHS = {1: 50, 4: 100, _ALL_SHOTS: 200}
_WEIGHTS = {"parametrization": "none", "population": 1, "search": "gradient", "iterations": 100, "merit": "acc_mem"}
_UNTUNED = {"parametrization": "none", "population": 1, "search": "gradient", "iterations": 1}
_C_EMB = {"parametrization": "shared", "embedding_weight": 1.0}
_NO_IMAGES = _C_EMB | {"with_images": 0.0, "memorize_weight": 0.0, "validate": "loss"}

METHODS: dict[str, Method] = {
    "zero-shot": Method("the plain prompt, nothing tuned", _UNTUNED, own_schedule=True),
    "label-mask": Method("forgotten names removed from the label list", _UNTUNED, "label list", own_schedule=True),
    "uniform-gate": Method("a forgotten top answer made uniform (not in the paper)", _UNTUNED, own_schedule=True),
    "null-space": Method(
        "forgotten names' embeddings projected out of the classifier (not in the paper)",
        _UNTUNED,
        "class embeddings",
        own_schedule=True,
    ),
    "null-space-centred": Method(
        "their differences from the kept names' mean projected out (not in the paper)",
        _UNTUNED,
        "class embeddings",
        own_schedule=True,
    ),
    "guided": Method(
        "LCS's prompts, found by a model of the answers with a twentieth of the image queries (not in the paper)",
        {"parametrization": "shared", "search": "guided", "population": 10, "iterations": 100_000, "merit": "h-all"},
        own_schedule=True,
    ),
    "lcs": Method("Latent Context Sharing, the paper's method", {"parametrization": "shared"}),
    "independent": Method("its ablation without a shared part (w/o LCS)", {"parametrization": "independent"}),
    "bbt": Method("Black-Box Tuning", {"parametrization": "bbt"}),
    "vanilla": Method("the context entries themselves, searched", {"parametrization": "vanilla"}),
    "bbt-sep": Method("BBT with separable CMA-ES", {"parametrization": "bbt", "search": "separable"}),
    "bbt-vkd": Method("BBT with VkD-CMA-ES", {"parametrization": "bbt", "search": "vkd"}),
    "lcs-acc": Method("LCS that weighs keeping over forgetting", {"parametrization": "shared", "memorize_weight": 3.0}),
    "random-search": Method(
        "as many random candidates (not in the paper)", {"parametrization": "shared", "search": "random"}
    ),
    "cbbt": Method(
        "slopes measured along random directions",
        _SLOPE | {"search": "differences", "population": 10, "rate": 0.5, "validate": "first"},
        planned_steps=True,
    ),
    "cbbt-own": Method(
        "CBBT as its repository has it, with more image queries",
        _SLOPE
        | {"search": "cbbt", "population": 257, "rate": 0.002, "rate_unit": "absolute", "origin": "a photo of a..."}
        | {"batch": 32, "views": 16, "smallest_crop": 0.5, "validate": "first"},
        own_schedule=True,
        planned_steps=True,
        epochs={_ALL_SHOTS: 150},
    ),
    "zip": Method(
        "after ZIP: low-rank contexts, two-sided perturbation, steps by Adam (not in the paper)",
        {"parametrization": "low-rank", "search": "two-sided", "population": 10, "rate": 1.0, "validate": "generation"},
        planned_steps=True,
    ),
    "coop": Method(
        "contexts by back-propagation",
        _COOP,
        "gradients",
        own_schedule=True,
        planned_steps=True,
        paper=_COOP_OWN,
        epochs=_COOP_EPOCHS,
    ),
    "coop-memorize": Method(
        "CoOp without the forgetting loss",
        _COOP | {"forget_weight": 0.0, "merit": "acc_mem"},
        "gradients",
        own_schedule=True,
        planned_steps=True,
        paper=_COOP_OWN,
        epochs=_COOP_EPOCHS,
    ),
    # "Only z is trainable", z being the forgotten classes' embeddings: the kept names stay under the plain prompt.
    "c-emb": Method(
        "forgetting from class embeddings, without images",
        _NO_IMAGES | {"applies_to": "forgotten"},
        "class embeddings",
    ),
    "c-emb-all": Method(
        "C-Emb with contexts before the kept names too (not in the paper)", _NO_IMAGES, "class embeddings"
    ),
    # One prompt for all names, as in LCS: the paper adds the C-Emb loss of the classes without images to LCS's own.
    "lcs+c-emb": Method(
        "LCS with images of half of the forgotten classes, C-Emb for the others",
        _C_EMB | {"with_images": 0.5},
        "class embeddings",
    ),
    "coop-params": Method(
        "contexts and a copy of the weights, by back-propagation",
        _SLOPE | _WEIGHTS | {"iterations": 200, "rate": 0.3, "merit": "h"},
        "weights",
        own_schedule=True,
        planned_steps=True,
        paper=_COOP_OWN,
        epochs=_COOP_EPOCHS,
    ),
    # The paper's "Fine-tune CLIP". Read as tuning contexts instead of weights, it is coop-memorize.
    "finetune": Method(
        "a copy of all weights, trained on the kept classes",
        _SLOPE | _WEIGHTS | {"forget_weight": 0.0},
        "weights",
        own_schedule=True,
    ),
    "scratch-resnet18": Method("a ResNet-18 of the kept classes alone", _WEIGHTS, "nothing", own_schedule=True),
    "scratch-vit": Method(
        "a ViT-B/16 of the kept classes alone", _WEIGHTS | {"iterations": 30}, "nothing", own_schedule=True
    ),
}


def changes_for(method: str, settings: Mapping[str, Value]) -> dict[str, Value]:
    """The settings that this method can take: one that follows a gradient, or learns nothing, has one candidate."""
    alone = METHODS[method].settings.get("population") == 1
    return {name: value for name, value in settings.items() if not (alone and name == "population")}
