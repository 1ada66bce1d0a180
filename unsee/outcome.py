"""What a finished run leaves in its folder: the result, the answer to every test image, the picture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from unsee.models import Bound
from unsee.picture import before_after
from unsee.records import Data
from unsee.runs import PICTURE, Run
from unsee.tuner import PromptTuner


def conclude(tuner: PromptTuner, data: Data, test: Bound, out: Path, seconds: dict[str, float]) -> dict[str, Any]:
    """Scores a fitted tuner on the test images and completes its run folder; returns what `result.json` holds.

    The result is written last: a folder that has one is whole.
    """
    started = time.perf_counter()
    found = tuner.evaluate(data.test, test)
    shots = data.train.subset(tuner.config_["split"]["train"])
    seconds = seconds | {"evaluation": time.perf_counter() - started}
    result = tuner.result(found, seconds) | {"train": tuner.score(shots).as_dict()}
    with Run.open(out) as run:
        run.write_answers(found.arrays() | {"labels": data.test.labels})
        before_after(data.test, found, tuner.forget_mask_).save(out / PICTURE)
        run.write_result(result)
    return result
