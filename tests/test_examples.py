from __future__ import annotations

import re
import runpy
from functools import partial
from pathlib import Path

import numpy as np

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


def test_the_own_photos_example_works_on_a_folder_of_photos(capsys, monkeypatch, tmp_path):
    demo = unsee.load_data("demo").test
    for label, name in enumerate(demo.class_names[2:6], 2):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in np.flatnonzero(demo.labels == label)[:16]:
            demo.read(int(i)).save(tmp_path / "photos" / name / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "own_photos.py"))["main"]("photos", "cat,bird", iterations=20)
    text = capsys.readouterr().out
    before, after = map(float, re.search(r"H (\d\.\d+) -> (\d\.\d+)", text).groups())
    assert before < after
    assert len(re.findall(r"^forget +(?:cat|bird) +known", text, re.MULTILINE)) == 2
    assert unsee.load_prompt("runs/own-photos").forget == ("bird", "cat")
