from __future__ import annotations

import re
import runpy
from functools import partial
from pathlib import Path

import unsee

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_own_service_example_forgets_within_its_budget(capsys, monkeypatch, demo_features):
    cached = partial(unsee.load_model, cache=unsee.FeatureCache(demo_features))
    monkeypatch.setattr(unsee, "load_model", cached)
    runpy.run_path(str(EXAMPLES / "own_service.py"))["main"](iterations=10)
    text = capsys.readouterr().out
    before, after = map(float, re.findall(r"H (\d\.\d+)", text))
    assert before < after
    assert "200 candidates" in text
