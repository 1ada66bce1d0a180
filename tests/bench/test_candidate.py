from __future__ import annotations

import json
from functools import cache

import pytest

from unsee.bench.candidate import BenchSize, measure, overhead
from unsee.cli import main
from unsee.cli.bench import show_overhead, show_timings
from unsee.cli.console import Console


@pytest.fixture(scope="module", autouse=True)
def small():
    """One layer in each tower instead of twelve; the weights drawn and the matrix product measured once."""
    import transformers  # not above: transformers puts another module in its own place when first used

    full, one = transformers.CLIPConfig, {"num_hidden_layers": 1}

    def config(vision_config):
        return full(text_config=one, vision_config=vision_config | one)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers, "CLIPConfig", config)
        for name in ("RandomClip", "gemm_peak"):
            patch.setitem(measure.__globals__, name, cache(measure.__globals__[name]))
        yield


@pytest.mark.slow
def test_every_way_is_timed_on_the_same_question(capsys):
    found = measure([BenchSize(2, 2, 3)])
    (row,) = found["settings"]
    assert row["ratio_vs_77"] > 1
    assert row["ratio_vs_published"] > 1
    assert row["largest_difference"] < 1e-5, "ours and transformers' class embeddings are the same"
    assert 0 < row["gemm_share"] < 1.5
    assert row["peak_rss_bytes"] > 2**20
    show_timings(Console(), found)
    assert "(c) / (a)" in capsys.readouterr().out
    show_timings(Console(as_json=True), found)
    keys = {"classes", "contexts", "population", "seconds_per_candidate", "ratio_vs_77", "ratio_vs_published"}
    assert keys | {"gemm_share", "peak_rss_bytes"} <= set(json.loads(capsys.readouterr().out)["settings"][0])


def test_overhead_is_a_small_share(capsys):
    rows = overhead([("cifar10", 16, "lcs", 1)])
    assert 0 < rows[0]["overhead_share"] < 0.5
    show_overhead(Console(), rows)
    assert "cifar10" in capsys.readouterr().out


def test_an_unknown_setting_is_refused(capsys):
    assert main(["bench", "--classes", "7"]) == 1
