"""What a large population and many classes take in memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_step_of_cbbt_with_a_thousand_classes_fits_in_4_gb():
    command = [sys.executable, "-m", "benchmarks.cbbt_memory", "40"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    (peak,) = re.findall(r"40 candidates: ([\d.]+) GiB", done.stdout)
    assert float(peak) * 2**30 <= 4e9
