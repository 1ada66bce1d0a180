"""The commands around the service, and what `deploy/` starts."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path

import click
import httpx
import pytest

import unsee
from tests.serve.servers import ThreadServer
from unsee.bench.load import Bare, load, measure_load
from unsee.cli import cli, main
from unsee.cli.serve import read_prompts
from unsee.models.remote.remote_model import image_file
from unsee.serve.keys import add_key, read_keys

DEPLOY = Path(__file__).parents[2] / "deploy"
FORGET = "airplane,automobile,bird,cat"


def test_a_new_key_is_printed_once_and_only_its_hash_is_kept(tmp_path, capsys):
    path = tmp_path / "keys.toml"
    assert main(["serve", "--keys", str(path), "--new-key", "alice"]) == 0
    key = capsys.readouterr().out.strip()
    assert read_keys(path).find(key).name == "alice"
    assert key not in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--new-key", "alice"], "--new-key needs --keys"),
        (["--keys", "nowhere.toml"], "make one with"),
        (["--keys", "k", "--no-keys"], "exclude each other"),
        (["--model", "http://127.0.0.1:1"], "is served already"),
        (["--answers", "some"], "--answers is all, label, or top-K"),
        (["--another-key", "alice"], "--another-key needs --keys"),
        (["--tls-cert", "cert.pem"], "--tls-cert and --tls-key go together"),
    ],
)
def test_options_that_make_no_sense_are_a_clear_line(arguments, says, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *arguments]) == 1
    assert says in capsys.readouterr().err


def test_a_run_through_the_command_line_uses_the_key_and_resumes_at_the_same_address(
    served, keys, image_folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("UNSEE_KEY", keys["alice"])
    out, sizes = tmp_path / "run", ["--set", "population=6", "--set", "contexts=2", "--shots", "2"]
    run = ["forget", str(image_folder), "--forget", "cat", "--model", served.url, "--out", str(out), *sizes]
    assert main([*run, "--iterations", "2"]) == 0
    assert json.loads((out / "config.json").read_text())["model"]["address"] == served.url
    monkeypatch.delenv("UNSEE_KEY")
    assert main(["resume", str(out), "--iterations", "3"]) == 1
    assert "does not know this key" in capsys.readouterr().err
    (tmp_path / "key").write_text(keys["alice"] + "\n")
    assert main(["resume", str(out), "--iterations", "3", "--key-file", str(tmp_path / "key")]) == 0
    assert len((out / "journal.jsonl").read_text().splitlines()) == 3


def test_the_serve_command_says_where_it_listens(model_folder, tmp_path, monkeypatch, capsys):
    ran = []

    def run(server, sockets):
        ran.append(sockets[0].getsockname())
        sockets[0].close()
        server.config.app._app._accounts._ledger.close()

    monkeypatch.setattr("uvicorn.Server.run", run)
    state = ["--port", "0", "--state", str(tmp_path), "--threads", "1"]
    assert main(["serve", "--model", str(model_folder), *state]) == 0
    assert f"http://127.0.0.1:{ran[0][1]} (without keys)" in capsys.readouterr().err


def test_the_serve_command_says_what_each_key_sees_and_which_prompt_is_missing(
    model_folder, tmp_path, monkeypatch, capsys, caplog
):
    path = tmp_path / "keys.toml"
    for name, own in (("alice", ""), ("bob", 'prompt = "pets"'), ("carol", 'prompt = "pets"')):
        add_key(path, name)
        path.write_text(path.read_text() + own + "\n")
    add_key(path, "bob", another=True)

    def run(server, sockets):
        sockets[0].close()
        server.config.app._app._accounts._ledger.close()

    monkeypatch.setattr("uvicorn.Server.run", run)
    state = ["--port", "0", "--state", str(tmp_path / "state"), "--threads", "1", "--keys", str(path)]
    assert main(["serve", "--model", str(model_folder), *state]) == 0
    said = capsys.readouterr().err
    assert "  alice: tune, no prompt: answers of the model itself" in said
    assert "  bob, carol: classify, every answer under pets, labels fixed" in said
    assert "the prompt 'pets' is granted, but not deployed" in caplog.text


def test_a_prompt_is_deployed_from_a_run_and_mandatory_for_whoever_has_no_key(model, data, tmp_path):
    tuner = unsee.PromptTuner(["cat"], iterations=2, population=4, shots=2, contexts=2, shared=3, own=2)
    tuner.fit(model, data).save(tmp_path / "run")
    deploy = read_prompts([f"pets={tmp_path / 'run'}"], model)
    server = ThreadServer(model, tmp_path / "state", prompts=["pets"], deploy=deploy)
    inputs = base64.b64encode(image_file(data.test, 3)).decode()
    body = {"inputs": inputs, "parameters": {"candidate_labels": ["cat", "dog"]}}
    rows = httpx.post(f"{server.url}/v1/classify", json=body).json()
    found = httpx.get(f"{server.url}/v1/prompts").status_code
    server.stop()
    right = dict(tuner.prompt.classify(model, data.test.subset([3]), top=10)[0].after)
    assert {row["label"]: row["score"] for row in rows} == pytest.approx({name: right[name] for name in ("cat", "dog")})
    assert found == 403
    for wrong, says in (("pets", "NAME=RUN"), (f"../x={tmp_path / 'run'}", "NAME=RUN")):
        with pytest.raises(unsee.InputError, match=says):
            read_prompts([wrong], model)


def check_parses(words: list[str]) -> None:
    assert words[0].endswith("unsee")
    _, command, rest = cli.resolve_command(click.Context(cli), words[1:])
    command.parse_args(click.Context(command), rest)


def test_what_deploy_starts_is_a_command_line_that_parses():
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    parts = {word: json.loads(line) for word, line in re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", dockerfile, re.M)}
    check_parses([*parts["ENTRYPOINT"], *parts["CMD"]])
    assert re.search(r"^USER unsee$", dockerfile, re.M)
    assert all("@sha256:" in line for line in re.findall(r"^FROM .*$", dockerfile, re.M))
    mounted = re.search(r"-v \S*keys:(\S+):ro", dockerfile)[1]
    assert parts["CMD"][-1].startswith(f"{mounted}/")
    ignored = (DEPLOY.parent / ".dockerignore").read_text().split("\n")
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    needed = {"pyproject.toml", "constraints.txt", project["project"]["readme"], "unsee", "LICENSE", "LICENSES"}
    assert ignored[1] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == needed
    unit = (DEPLOY / "unsee.service").read_text()
    check_parses(shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.M)[1]))
    assert "ProtectSystem=strict" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_the_unit_is_one_that_systemd_accepts(tmp_path):
    unit = (DEPLOY / "unsee.service").read_text().replace("/opt/unsee/bin/unsee", "/bin/true")
    (tmp_path / "unsee.service").write_text(unit.replace("/opt/unsee/bin/python", "/bin/true"))
    command = ["systemd-analyze", "verify", str(tmp_path / "unsee.service")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "unsee.service" not in found.stderr, found.stderr


@pytest.mark.slow
def test_a_run_of_the_embedded_model_over_http_is_the_local_one_and_takes_hardly_longer(tmp_path, demo_features):
    """Both warm: the local one has its features in the cache, the service has the images."""

    def run(name: str, *options: str) -> float:
        command = [
            sys.executable,
            "-m",
            "unsee.cli",
            "forget",
            "demo",
            "--forget",
            FORGET,
            "--out",
            str(tmp_path / name),
        ]
        start = time.perf_counter()
        subprocess.run([*command, "--overwrite", *options], check=True, capture_output=True)
        return time.perf_counter() - start

    server = ThreadServer(unsee.load_model("mini", threads=1), tmp_path / "state")
    local, remote = ("--cache-dir", str(demo_features)), ("--model", server.url)
    run("local", *local), run("remote", *remote)
    times = [(run("local", *local), run("remote", *remote)) for _ in range(3)]
    server.stop()
    for name in ("prompt.safetensors", "prompt.json"):
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "remote" / name).read_bytes()
    assert min(there for _, there in times) <= 1.3 * min(here for here, _ in times), times


def test_load_is_measured_and_wrong_answers_are_found(model, data, tmp_path):
    """Small: a tiny model in this process, a few clients, half a second."""
    bare = Bare(model, [data.test.read(row) for row in range(8)], data.class_names)
    rate = bare.throughput()
    files = [image_file(data.test, row) for row in range(8)]
    server = ThreadServer(model, tmp_path)
    right = asyncio.run(load(server.port, os.getpid(), files, bare.answers, data.class_names, 4, 0.5))
    wrong = asyncio.run(load(server.port, os.getpid(), files, bare.answers[1:] * 2, data.class_names, 4, 0.1))
    server.stop()
    found = right.result(4, 1, rate, bare.cpu)
    assert found.requests >= 4  # each client at least once, however busy the machine is
    assert (found.server_errors, found.refused, found.failed, found.wrong) == (0, 0, 0, 0)
    assert 0 < found.p50 <= found.p99
    assert found.throughput > 0
    assert found.memory_end > 0
    assert wrong.wrong == len(wrong.statuses) > 0


def test_the_bench_serves_loads_and_compares(model, model_folder, tmp_path, monkeypatch, capsys):
    @contextmanager
    def service(name, threads):
        server = ThreadServer(model, tmp_path)
        yield server.port, os.getpid()
        server.stop()

    monkeypatch.setattr("unsee.bench.load._service", service)
    found = measure_load(clients=3, seconds=0.3, model=str(model_folder), images=6, threads=1)
    assert (found.clients, found.threads, found.wrong, found.failed) == (3, 1, 0, 0)
    assert found.ratio == pytest.approx(found.throughput / found.bare_throughput)
    monkeypatch.setattr("unsee.bench.load.measure_load", lambda clients, seconds, say: found)
    assert main(["bench", "--serve", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == found.requests
    assert main(["bench", "--serve"]) == 0
    assert f"{found.requests} requests: 0 5xx" in capsys.readouterr().out


@pytest.mark.slow
def test_sixty_four_clients_for_two_minutes():
    found = measure_load(clients=64, seconds=120)
    assert (found.server_errors, found.refused, found.failed, found.wrong) == (0, 0, 0, 0), found
    assert found.memory_growth <= 0.1, found
    assert found.ratio >= 0.8, found
