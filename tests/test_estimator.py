"""`PromptTuner` keeps the contract of scikit-learn's estimators, and says in one line what is wrong."""

from __future__ import annotations

import re
import shutil
import typing

import numpy as np
import pytest
from sklearn.base import clone

import unsee
from unsee import InputError, NotFittedError, PromptTuner, UnseeError
from unsee.cli import main
from unsee.settings import FIELDS, GivenSettings, Settings

FORGET = ["bird", "cat"]
SHORT = {"iterations": 3, "shots": 2, "population": 6}


@pytest.fixture(scope="module")
def tuner(model, data):
    return PromptTuner(FORGET, **SHORT).fit(model, data)


def test_parameters_are_those_that_were_given_and_can_be_set():
    tuner = PromptTuner(FORGET, "bbt", seed=3, shots=2)
    assert tuner.get_params() == {
        "forget": FORGET,
        "method": "bbt",
        "preset": "tuned",
        "seed": 3,
        "verbose": False,
        "shots": 2,
    }
    assert tuner.set_params(seed=4, shots=5, iterations=7) is tuner
    assert (tuner.seed, tuner.settings) == (4, {"shots": 5, "iterations": 7})
    with pytest.raises(InputError, match=r"unknown setting 'shotss'; did you mean 'shots'"):
        tuner.set_params(shotss=3)
    with pytest.raises(InputError, match="class names are text"):
        tuner.set_params(forget=[3])
    assert (tuner.forget, tuner.settings) == (FORGET, {"shots": 5, "iterations": 7})


def test_scikit_learn_clones_a_tuner_without_what_it_learned(tuner):
    copy = clone(tuner)
    assert copy.get_params() == tuner.get_params()
    assert copy is not tuner
    assert not hasattr(copy, "history_")
    assert hasattr(tuner, "history_")


def test_what_is_learned_is_not_there_before_fit():
    tuner = PromptTuner(FORGET)
    uses = [
        lambda: tuner.predict([]),
        lambda: tuner.predict_proba([]),
        lambda: tuner.score([]),
        lambda: tuner.evaluate([]),
        lambda: tuner.save("nowhere"),
        lambda: tuner.plot(),
        lambda: tuner.prompt,
        lambda: tuner.contexts_,
        lambda: tuner.history_,
        lambda: tuner.front_,
    ]
    for use in uses:
        with pytest.raises(
            NotFittedError, match=r"^this PromptTuner is not fitted yet; call fit\(model, data\) first$"
        ):
            use()
    assert issubclass(NotFittedError, (UnseeError, ValueError, AttributeError))
    assert {UnseeError, ValueError, AttributeError} < set(NotFittedError.__mro__)
    with pytest.raises(AttributeError, match="no attribute 'histroy_'"):
        _ = tuner.histroy_


def test_everything_a_user_holds_is_one_readable_line(tuner, model, data):
    shown = {
        repr(tuner): r"PromptTuner\(\['bird', 'cat'\], iterations=3, shots=2, population=6\)",
        repr(PromptTuner("cat", "bbt", seed=1)): r"PromptTuner\('cat', 'bbt', seed=1\)",
        repr(model): r"LocalModel\('.*', width 64, 77 tokens, [0-9a-f]{12}\)",
        repr(data): r"Data\('.*', 10 classes, 80 training and 60 test images\)",
        repr(data.test): r"Images\(60 of 10 classes: airplane, automobile, bird, cat, deer, dog, …\)",
        repr(unsee.as_images([data.test.read(0)])): r"Images\(1, without labels\)",
        repr(tuner.prompt): r"Prompt\(8 contexts of width 64 for '.*', forgets bird, cat, served as mask-top-digit\)",
        repr(tuner.run_): r"TunedRun\(guided, seed 0, on '.*' with '.*': forgets bird, cat, valid H \d\.\d\d, "
        r"32 candidates\)",
        repr(model.card): r"Card\(name='.*', fingerprint='[0-9a-f]+', width=64, token_std=.*\)",
    }
    for text, wanted in shown.items():
        assert re.fullmatch(wanted, text), text
    assert eval(repr(tuner)).get_params() == tuner.get_params()


def test_probabilities_are_as_served_and_in_the_order_of_the_class_names(tuner, data):
    found = tuner.predict_proba(data.test)
    assert found.shape == (60, 10)
    assert np.allclose(found.sum(axis=1), 1, atol=1e-6)
    assert [tuner.class_names_[i] for i in found.argmax(axis=1)] == tuner.predict(data.test)
    gone = np.isin(tuner.class_names_, FORGET)
    assert (found[:, gone] == 0).all(), "mask-top-digit removes the forgotten names"
    plain = PromptTuner(FORGET, "label-mask", shots=2).fit(tuner.model_, tuner.data_).predict_proba(data.test)
    assert np.allclose(plain.sum(axis=1), 1, atol=1e-6)


def test_fit_takes_names_as_well_as_objects(tuner, model_folder, image_folder, monkeypatch):
    monkeypatch.chdir(image_folder.parent)
    named = PromptTuner(FORGET, **SHORT).fit(str(model_folder), image_folder.name)
    assert np.array_equal(named.contexts_, tuner.contexts_)
    assert named.config_.data.name == str(image_folder), "so that the run can be audited from another folder"
    with pytest.raises(UnseeError, match="no such folder"):
        PromptTuner(FORGET).fit(str(model_folder), "no/where")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m, d: PromptTuner(1.5), "classes to forget are a name or a list of names, not 1.5"),
        (lambda m, d: PromptTuner(None), "classes to forget are a name or a list of names, not None"),
        (lambda m, d: PromptTuner([]), "no class to forget was named"),
        (lambda m, d: PromptTuner("cat").fit(3, d), "model is a name, a folder or what load_model returns, not 3"),
        (lambda m, d: PromptTuner("cat").fit(m, d.test), "data is a name, a folder or what load_data returns, not Ima"),
        (lambda m, d: PromptTuner("cat").fit(d, m), "model is a name, a folder or what load_model returns, not Data"),
        (lambda m, d: unsee.Data("x", None, d.test), "data 'x': train must be Images, not None"),
        (lambda m, d: PromptTuner("cat", ["lcs"]).fit(m, d), "method is a name, not \\['lcs'\\]"),
        (lambda m, d: PromptTuner("cat", preset=3).fit(m, d), "preset is a name, not 3"),
        (lambda m, d: PromptTuner("cat", seed="a").fit(m, d), "seed must be a whole number"),
        (lambda m, d: PromptTuner("cat", shots=2.5).fit(m, d), "shots must be a whole number, not 2.5"),
        (lambda m, d: PromptTuner("cat", shot=2).fit(m, d), "unknown setting 'shot'"),
        (lambda m, d: PromptTuner("cat", **SHORT).fit(m, d, out=3), "out is a folder, not 3"),
        (lambda m, d: PromptTuner("cat", **SHORT).fit(m, d, watch=3), "watch is a function, not 3"),
        (lambda m, d: PromptTuner("cat", **SHORT).fit(m, d).score(d), "only labelled images such as data.test can be"),
        (lambda m, d: PromptTuner("cat", **SHORT).fit(m, d).predict(3), "images must be an Images record, paths, PIL"),
    ],
)
def test_wrong_arguments_are_one_line(model, data, make, message):
    with pytest.raises(UnseeError, match=message) as error:
        make(model, data)
    assert "\n" not in str(error.value)


def test_numbers_of_numpy_are_numbers(model, data):
    tuner = PromptTuner("cat", seed=np.int64(1), iterations=np.int64(2), shots=2, sigma0=np.float64(0.5)).fit(
        model, data
    )
    assert (tuner.settings_.seed, tuner.settings_.sigma0) == (1, 0.5)


def test_verbose_shows_progress_in_lines_where_there_is_no_terminal(model, data, capsys):
    PromptTuner(FORGET, **SHORT).fit(model, data)
    assert capsys.readouterr() == ("", "")
    for tuner, more in (
        (PromptTuner(FORGET, verbose=True, **SHORT), {}),
        (PromptTuner(FORGET, **SHORT), {"verbose": True}),
    ):
        tuner.fit(model, data, **more)
        out, err = capsys.readouterr()
        assert out == ""
        assert re.search(r"^generation 3/3  loss \d\.\d+  valid H \d", err, re.MULTILINE)


def test_a_saved_tuner_can_be_reported_and_audited(model, data, tmp_path, capsys):
    tuner = PromptTuner(FORGET, **SHORT).fit(model, data)
    tuner.save(tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    assert main(["audit", str(tmp_path / "run"), "--skip", "membership,names,templates"]) == 0
    capsys.readouterr()
    tuner.save(tmp_path / "bare", test=False)
    assert not (tmp_path / "bare" / "result.json").exists()
    tuner.save(tmp_path / "some", test=data.test.subset(range(0, 60, 3)))
    assert (tmp_path / "some" / "result.json").exists()


def test_a_run_is_audited_from_python(model, data, tmp_path):
    tuner = PromptTuner(FORGET, **SHORT).fit(model, data)
    with pytest.raises(InputError, match=r"has no folder yet; save it first: tuner\.save"):
        unsee.audit_run(tuner)
    tuner.save(tmp_path / "run")
    parts = ["membership"]
    said = []
    found = unsee.audit_run(tuner, parts=parts, say=said.append)
    assert found.findings
    assert said
    again = unsee.audit_run(tmp_path / "run", parts=parts)  # loads model and data by the names in its config
    assert again.model_copy(update={"seconds": 0.0}) == found.model_copy(update={"seconds": 0.0})
    assert unsee.audit_run(str(tmp_path / "run"), model, data, parts=parts).findings == found.findings


def test_a_run_in_a_moved_folder_is_audited_with_the_data_that_is_given(model, data, image_folder, tmp_path):
    tuner = PromptTuner(FORGET, **SHORT).fit(model, data, out=tmp_path / "run", test=data.test)
    moved = shutil.copytree(image_folder, tmp_path / "moved")
    assert unsee.audit_run(tuner.run_, data=str(moved), parts=["membership"]).findings


def test_editors_know_every_setting_with_its_type():
    mine, theirs = typing.get_type_hints(GivenSettings), typing.get_type_hints(Settings)
    own = {"method", "preset", "seed"}
    assert list(mine) == [name for name in FIELDS if name not in own]
    assert mine == {name: theirs[name] for name in mine}
    hints = typing.get_type_hints(PromptTuner.__init__)
    assert hints["settings"] == typing.Unpack[GivenSettings]


def test_the_front_is_a_table(tuner):
    front = tuner.front_
    rows = front if isinstance(front, list) else front.to_dict("records")
    assert len(rows) == len(tuner.run_.recorder.front) > 0
    assert list(rows[0]) == ["generation", "candidate", "loss", "err_for", "acc_mem", "entropy", "valid_h"]
    assert all(0 <= row["acc_mem"] <= 1 for row in rows)


def test_the_front_is_a_data_frame_where_pandas_is(tuner):
    pandas = pytest.importorskip("pandas")
    assert isinstance(tuner.front_, pandas.DataFrame)


def test_a_plot_shows_loss_validation_and_front(tuner, tmp_path):
    figure = tuner.plot()
    assert [axes.get_title() for axes in figure.axes[:3]] == ["Loss", "Validation H", "Front"]
    assert len(figure.axes[0].lines[0].get_xdata()) == 3
    assert list(figure.axes[1].lines[0].get_ydata()) == pytest.approx([g.valid.h for g in tuner.history_])
    figure.savefig(tmp_path / "plot.png")
    assert figure._repr_png_().startswith(b"\x89PNG"), "a notebook shows it"
    assert PromptTuner(FORGET, "label-mask", shots=2).fit(tuner.model_, tuner.data_).plot().axes


def test_bad_test_images_are_left_out_of_a_saved_run_if_that_was_asked_for(model, image_folder, tmp_path):
    photos = shutil.copytree(image_folder, tmp_path / "photos")
    (photos / "test" / "cat" / "broken.png").write_bytes(b"no image")
    tuner = PromptTuner(FORGET, skip_bad_images=True, **SHORT).fit(model, str(photos))
    tuner.save(tmp_path / "run")
    assert len(tuner.data_.test) == 60
    assert unsee.audit_run(tmp_path / "run", parts=["membership"]).images == 60
    with pytest.raises(unsee.ImageError, match=r"broken\.png"):
        PromptTuner(FORGET, **SHORT).fit(model, str(photos)).save(tmp_path / "strict")
