"""Nothing in a checkpoint is executed."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from pathlib import Path

import pytest
import torch

from tests.models.clip_files import (
    refusal,
)


class Touch:
    """What a malicious pickle does: runs a call when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("form", ["zip", "old zip", "raw pickle"])
@pytest.mark.parametrize("name", ["clip.pt", "pytorch_model.bin", "open_clip_pytorch_model.bin"])
def test_a_pickle_that_wants_to_run_code_is_refused_and_does_not_run(quick, tmp_path, name, form):
    marker, path = tmp_path / "ran", tmp_path / name
    content = {"visual.conv1.weight": torch.zeros(1), "more": Touch(marker)}
    if form == "raw pickle":
        path.write_bytes(pickle.dumps({"more": Touch(marker)}))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    if name == "pytorch_model.bin":
        (tmp_path / "config.json").write_bytes((quick[0] / "config.json").read_bytes())
    if name == "open_clip_pytorch_model.bin":
        (tmp_path / "open_clip_config.json").write_text('{"model_cfg": {}}')
    message = refusal(path if name == "clip.pt" else tmp_path)
    assert message.startswith(f"{path}: holds more than weights")
    assert not marker.exists()
    if form != "raw pickle":
        torch.load(path, weights_only=False)  # proof that it does run when trusted
        assert marker.exists()


class Overwriting(torch.nn.Module):
    """What a malicious TorchScript archive does: its own code runs when torch reads it."""

    def __init__(self, victim: str) -> None:
        super().__init__()
        self.victim = victim
        self.weight = torch.nn.Parameter(torch.zeros(2))

    @torch.jit.export
    def __getstate__(self):
        return (self.weight, self.victim, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, str, bool]) -> None:
        self.weight = torch.from_file(state[1], shared=True, size=4, dtype=torch.uint8).fill_(7)
        self.victim = state[1]
        self.training = state[2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_a_torchscript_archive_that_wants_to_run_code_is_refused_and_does_not_run(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "clip.pt"
    victim.write_bytes(b"keep")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Overwriting(str(victim))).save(str(path))
        assert victim.read_bytes() == b"keep"
        assert refusal(path).startswith(str(path))
        assert victim.read_bytes() == b"keep"
        torch.jit.load(str(path))  # proof that it does run when torch reads it
    assert victim.read_bytes() == bytes([7] * 4)


def test_a_torchscript_archive_whose_tree_wants_to_run_code_is_refused_and_does_not_run(tmp_path):
    marker, path = tmp_path / "ran", tmp_path / "clip.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("clip/data.pkl", pickle.dumps({"weight": Touch(marker)}, protocol=2))
        archive.writestr("clip/constants.pkl", b"")
    assert refusal(path).startswith(f"{path}: holds more than weights")
    assert not marker.exists()
