"""What `choose_sizes` tries, by data set and preset: method and settings of each trial."""

from __future__ import annotations

TRIALS: dict[tuple[str, str], tuple[str, ...]] = {
    ("cifar10-batch5", "tuned"): (
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
        "lcs:validate=generation",
        "bbt:dim=60,validate=generation",
        "independent:dim=120,validate=generation",
        "zip:population=20,rate=0.1,validate=every",
        "zip:population=20,rate=0.1,validate=generation",
        "zip:population=20,rate=0.3,validate=generation",
        "zip:population=20,rate=0.03,validate=generation",
        "zip:population=10,rate=0.1,validate=generation",
    ),
}
