"""A run that left unreadable images out is audited without them too."""

from __future__ import annotations

from tests import tiny
from unsee.audit.record import read_audit
from unsee.cli import main
from unsee.runs.folder import read_config


def test_a_run_that_left_bad_images_out_is_audited_without_them(tmp_path, model_folder):
    photos, run = tiny.write_images(tmp_path / "photos", train=12, test=5), tmp_path / "run"
    for name in (path.name for path in (photos / "train").iterdir()):
        for part in ("train", "test"):
            min((photos / part / name).iterdir()).write_bytes(b"")
    options = ["--forget=cat", "--iterations=2", "--shots=2", f"--model={model_folder}", "--no-cache"]
    assert main(["forget", str(photos), *options, "--skip-bad-images", f"--out={run}"]) == 0
    split = read_config(run).split
    assert len({*split.train, *split.valid}) < 11 * len(read_config(run).class_names), "some were not used"
    assert main(["audit", str(run), "--no-cache"]) == 0
    found = read_audit(run)
    assert found.membership is not None
    assert found.membership.others == "training images that were not used"
    assert found.rebuilt is not None
