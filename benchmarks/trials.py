"""What `choose_sizes` tries, by data set and preset: method and settings of each trial."""

from __future__ import annotations

_FEW = ("4+20+5", "4+80+20", "4+160+40", "8+80+20", "8+160+40", "8+80+80", "8+80+120", "8+20+120", "8+0+120")
_MANY = ("16+80+20", "16+80+120", "16+160+40", "16+400+100")


def lcs(sizes: str) -> str:
    """A trial of LCS: contexts, shared and own numbers."""
    contexts, shared, own = sizes.split("+")
    return f"lcs:contexts={contexts},shared={shared},own={own}"


RIVALS = (
    "cbbt:population=257,rate=0.5,validate=every",
    "cbbt:population=20,rate=0.5,validate=every",
    "cbbt:population=20,rate=0.5,validate=first",
    "cbbt:population=20,rate=0.2,validate=first",
    "cbbt:population=20,rate=1.0,validate=first",
    "cbbt:population=10,rate=0.5,validate=first",
    "cbbt:population=40,rate=0.5,validate=first",
    "bbt:dim=10",
    "bbt:dim=60",
    "bbt:dim=120",
    "independent:dim=10",
    "independent:dim=60",
    "independent:dim=120",
    "lcs:",
    "zip:population=20,rate=0.1,validate=every",
    "zip:population=20,rate=0.1,validate=generation",
    "zip:population=20,rate=0.3,validate=generation",
    "zip:population=10,rate=0.3,validate=generation",
    "zip:population=10,rate=1.0,validate=generation",
    "zip:population=10,rate=3.0,validate=generation",
)
TRIALS: dict[tuple[str, str], tuple[str, ...]] = {
    ("cifar10-batch5", "tuned"): (*RIVALS, *map(lcs, _FEW)),
    ("cifar10-batch5", "paper"): (
        "cbbt:population=10,rate=0.5,validate=first",
        "cbbt:population=20,rate=0.5,validate=first",
    ),
    ("cifar100-tenth", "tuned"): tuple(map(lcs, _MANY)),
}
ELSEWHERE = tuple(map(lcs, ("4+20+5", "8+20+120", "16+80+120")))  # on folders
