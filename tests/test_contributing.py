"""The worked examples of docs/extending.md hold: each file is made, its line added to the dict, and the result used."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import unsee
from tests import tiny
from unsee.answers.rules import RULES, serve
from unsee.audit.audit import audit
from unsee.cli import main
from unsee.data import list_data_sets

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
FORGET = ("bird", "cat")


def section(title: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    return re.split(r"^## ", text.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def follow(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Does what a section of the page says: makes its file, if it has one, and adds its line to the dict it names."""
    text, names = section(title), {}
    found = re.search(r"^File `(.+?)`:\n\n```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    if found:
        path, code = found.groups()
        module = ModuleType(module_of(path))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(code, path, "exec"), module.__dict__)
        names = module.__dict__
    named, where, line = re.search(r"^Line in `(\w+)` of `(.+?)`: `(.+)`$", text, flags=re.MULTILINE).groups()
    place = importlib.import_module(module_of(where))
    for key, value in eval(f"{{{line}}}", vars(place) | names).items():
        monkeypatch.setitem(getattr(place, named), key, value)


@pytest.fixture(scope="module")
def run(model, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("examples") / "run"
    tuner = unsee.PromptTuner(FORGET, "label-mask", shots=2).fit(model, data, out=out)
    tuner.finish(out, tuner.run_.bind(data.test))
    return out


def test_a_measure_is_one_file_and_one_line(run, model, data, model_folder, monkeypatch, capsys):
    follow("A measure", monkeypatch)
    found = audit(run, model, data, parts=["sureness"])
    assert found.more["sureness"]["images"] == 12
    assert any("sure" in each.finding for each in found.findings)
    skipped = "names,templates,distractors,pictures,attacks,rebuild,membership"
    assert main(["audit", str(run), "--no-cache", "--skip", skipped]) == 0
    assert "confidence on forgotten images" in capsys.readouterr().out
    (run / "audit.json").unlink()  # else its parts are kept
    assert main(["audit", str(run), "--no-cache", "--skip", f"{skipped},sureness", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["more"] == {}


def test_a_rule_is_one_file_and_one_line(run, model, data, monkeypatch):
    follow("A rule", monkeypatch)
    p = np.array([[0.4, 0.3, 0.2, 0.1]], dtype=np.float32)
    np.testing.assert_allclose(serve(p, np.zeros(4, bool), "top-half"), [[0.4, 0.3, 0.15, 0.15]], atol=1e-6)
    assert RULES["top-half"].about
    assert "top-half" in audit(run, model, data, parts=[]).serving


def test_a_method_is_one_line(model, data, monkeypatch, tmp_path):
    follow("A method", monkeypatch)
    tuner = unsee.PromptTuner(FORGET, "lcs-push", shots=2, iterations=2).fit(model, data, out=tmp_path / "run")
    assert tuner.settings_.goal == "push"
    assert 0 <= tuner.score(data.test).h <= 1


def test_a_data_set_is_one_file_and_one_line(monkeypatch, tmp_path):
    follow("A data set", monkeypatch)
    with pytest.raises(unsee.DataError, match=r"photos\.zip \(no checksum published\) from https://example"):
        unsee.load_data("pets", data_dir=tmp_path)
    tiny.write_images(tmp_path / "pets" / "photos", names=("cat", "dog"), train=2, test=2)
    data = unsee.load_data("pets", data_dir=tmp_path)
    assert (data.name, data.class_names, len(data.train)) == ("pets", ("cat", "dog"), 4)
    assert [row["found"] for row in list_data_sets(tmp_path) if row["name"] == "pets"] == [True]


def test_a_command_is_one_file_and_one_line(image_folder, monkeypatch, capsys):
    follow("A command", monkeypatch)
    assert main(["classes", str(image_folder)]) == 0
    assert capsys.readouterr().out.split() == list(tiny.NAMES)
    assert main(["classes", str(image_folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"classes": list(tiny.NAMES)}
    assert main(["--help"]) == 0
    assert "List the class names of DATA." in capsys.readouterr().out


def test_every_dict_and_file_that_the_page_names_is_there():
    for path in set(re.findall(r"`((?:unsee|tests)/[\w/.]+\.py)`", PAGE.read_text(encoding="utf-8"))):
        if f"File `{path}`" not in PAGE.read_text(encoding="utf-8"):
            assert (PAGE.parent.parent / path).is_file(), path
