from __future__ import annotations

import json

import pytest

from unsee.bench import family as family_bench
from unsee.bench.family import BASE, TowerShape
from unsee.cli import main

SMALL = TowerShape(32, 2, 64, 64)


def test_the_bound_is_what_can_be_cut():
    """Counted by hand for two layers of width 2: no middle layer."""
    shape = TowerShape(width=2, layers=2, hidden=3, positions=5)
    layer, attention = 5 * (4 * 4 + 2 * 6), 2 * 5 * 5 * 2
    assert shape.macs() == 2 * (layer + attention) + 4
    first = 5 * (4 + 12) + 3 * 4 * 6 / 3 + attention  # six contexts, shared by three classes
    last = 5 * 2 * 4 + 4 + (4 + 12) + 2 * 5 * 2
    assert shape.macs_left(6, 3) == first + last + 4
    assert 1.05 < BASE.macs() / BASE.macs_left(16, 100) < 1.15


def test_siglip_is_timed_beside_the_library_and_gives_the_same_numbers(monkeypatch, capsys):
    monkeypatch.setattr(family_bench, "AT_LEAST", 6)
    monkeypatch.setattr(family_bench.measure_family, "__defaults__", (family_bench.CLASSES, SMALL, lambda text: None))
    assert main(["bench", "--family", "siglip", "--classes", "3", "--classes", "13", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["settings"]
    assert [(row["classes"], row["candidates"]) for row in rows] == [(3, 2), (13, 1)]
    for row in rows:
        assert row["largest_difference"] < 1e-5
        assert row["share_of_bound"] == pytest.approx(row["ratio"] / row["bound"])
        assert row["bound"] > 1
    assert main(["bench", "--family", "siglip", "--classes", "3"]) == 0
    assert "share of bound" in capsys.readouterr().out


def test_other_families_are_refused(capsys):
    assert main(["bench", "--family", "altclip"]) == 1
    assert "--family is one of siglip, not 'altclip'" in capsys.readouterr().err
