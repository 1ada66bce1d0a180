"""Nothing that unsee imports reports to anyone: a whole run looks no host up and leaves no identity behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

from unsee.telemetry import SWITCHES

# Python's own look-ups and connections; native code is seen by strace alone.
WATCH = """
import sys
def watch(event, details):
    if event in ("socket.getaddrinfo", "socket.gethostbyname") or (event == "socket.connect" and len(details[1]) > 1):
        print("network:", event, details, file=sys.stderr)
sys.addaudithook(watch)
"""
TRACE = ["strace", "-f", "--seccomp-bpf", "-e", "trace=connect,sendto,sendmmsg,openat", "-e", "quiet=all"]
OUTSIDE = re.compile(r'resolv\.conf|inet_addr\("(?!127\.)|inet_pton\(AF_INET6, "(?!::1")')


@pytest.fixture
def place(tmp_path):
    """A home of its own, with a Python that says what it asks of the network."""
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(WATCH)
    return tmp_path


def start(place: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    hidden = (*SWITCHES, "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    paths = [str(place / "hooks"), str(Path(__file__).parent.parent)]
    environment = {**kept, "HOME": str(place / "home"), "PYTHONPATH": os.pathsep.join(paths)}
    environment["MPLCONFIGDIR"] = matplotlib.get_cachedir()  # or it lists the machine's fonts again, for seconds
    (place / "home").mkdir()
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("data", ["images", pytest.param("demo", marks=pytest.mark.slow)])
def test_a_whole_run_asks_nothing_of_the_network_and_leaves_nothing_at_home(place, data, image_folder):
    run = ["forget", str(image_folder) if data == "images" else data, "--forget", "cat", "--iterations", "2"]
    trace = [*TRACE, "-o", str(place / "calls")] if shutil.which("strace") else []
    command = [sys.executable, "-m", "unsee.cli", *run, "--out", "run", "--no-cache"]
    done = start(place, [*trace, *command])
    if trace and "ptrace" in done.stderr:
        pytest.skip("this machine does not allow strace")
    assert done.returncode == 0, done.stderr
    assert "network:" not in done.stderr
    if trace:
        calls = (place / "calls").read_text(encoding="utf-8", errors="replace").splitlines()
        assert len(calls) > 100  # it did watch
        assert not [line for line in calls if OUTSIDE.search(line)]
    assert not [path for path in (place / "home").rglob("*") if path.is_file()]


def test_importing_any_part_switches_reports_off_before_the_libraries_are_imported(place):
    code = "import sys, os; import unsee.errors; from unsee.telemetry import SWITCHES as s; "
    code += "assert not {'onnxruntime', 'transformers', 'huggingface_hub', 'ray'} & set(sys.modules); "
    code += "print({name: os.environ[name] for name in s} == s)"
    assert start(place, [sys.executable, "-c", code]).stdout == "True\n"


def test_a_choice_in_the_environment_wins(place):
    code = "import os; os.environ['RAY_USAGE_STATS_ENABLED'] = '1'; import unsee; "
    code += "print(os.environ['RAY_USAGE_STATS_ENABLED'])"
    assert start(place, [sys.executable, "-c", code]).stdout == "1\n"


@pytest.mark.parametrize("file", ["deploy/Dockerfile", "deploy/unsee.service"])
def test_the_service_is_started_with_reports_off(file):
    text = (Path(__file__).parent.parent / file).read_text(encoding="utf-8")
    assert not [name for name, value in SWITCHES.items() if f"{name}={value}" not in text]
