"""What the pages say and do: the list, a result, another trade-off, one image, a new run, a stream."""

from __future__ import annotations

import asyncio
import html
import io
import json
import os
import shutil
import sys
import time
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save

from tests import tiny
from tests.studio.conftest import SCRIPT_CLASS, open_app, open_client
from unsee.cli import main
from unsee.errors import InputError
from unsee.runs.folder import read_answers, read_config, read_result
from unsee.runs.lock import FolderLock
from unsee.runs.prompt import load_prompt
from unsee.studio.jobs import Queue
from unsee.studio.live import journal_events

JSON = {"accept": "application/json"}


def test_an_empty_folder_says_what_to_do_next(tmp_path):
    app, visitors = open_app(tmp_path / "none")
    client = open_client(app)
    client.get(f"/?token={visitors.token}")
    text = client.get("/").text
    assert "Make the first run" in text
    assert "unsee forget demo" in text
    assert "No prompt to try yet" in client.get("/try").text


def test_the_list_has_every_run_with_its_state(page, root):
    text = page.get("/").text
    for name in ("pets", "deep/stopped", "damaged"):
        assert f'href="/run/{name}"' in text
    for state in ("finished", "interrupted", "damaged"):
        assert f'class="state {state}"' in text
    assert "<script>alert" not in text
    with FolderLock(root / "deep" / "stopped"):
        time.sleep(0.6)
        assert 'class="state running"' in page.get("/").text


def test_the_list_is_filtered_and_sorted(page):
    rows = page.get("/", params={"part": "rows", "state": "interrupted"}).text
    assert "deep/stopped" in rows
    assert "/run/pets" not in rows
    assert "No run fits" in page.get("/", params={"q": "nothing like it"}).text
    for key in ("changed", "name", "state", "h", "err_for", "acc_mem", "queries", "unknown"):
        assert page.get("/", params={"sort": key}).status_code == 200


def test_a_result_shows_scores_classes_images_and_how_to_do_the_same(page, root):
    answer = page.get("/run/pets")
    assert answer.status_code == 200
    result = read_result(root / "pets")
    assert f"{100 * result.test.h:.2f}" in answer.text
    assert "Not audited yet" in answer.text
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;" in answer.text
    assert "unsee forget" in answer.text
    for show in ("lost", "still", "forget", "keep"):
        assert page.get("/run/pets", params={"show": show, "class": "cat", "page": "1"}).status_code == 200


def test_command_lines_of_a_folder_with_a_space_can_be_copied(page, root):
    shutil.copytree(root / "pets", root / "my pets")
    text = html.unescape(page.get("/run/my%20pets").text)
    for command in ("audit", "pick"):
        assert f"unsee {command} '{root / 'my pets'}'" in text


def test_what_most_needs_a_look_is_shown_first_of_what_there_is(page, root):
    answers = read_answers(root / "pets")
    kept = np.isin(answers["labels"], [read_config(root / "pets").class_names.index(n) for n in ("dog", "deer")])
    for served, show in ((answers["labels"], "still"), (np.where(kept, answers["labels"], -1), "forget")):
        (root / "pets" / "answers.safetensors").write_bytes(save({**answers, "answers_served": served}))
        os.utime(root / "pets" / "result.json")
        assert f'<option value="{show}" selected>' in page.get("/run/pets").text


def test_a_run_that_never_began_can_be_taken_off_the_list(page, root):
    queue = Queue(root / ".studio" / "jobs")
    job = queue.add(root / "failed", ["forget", "nothing", "--forget=cat"])
    queue._write(job.model_copy(update={"ended": True}))
    text = page.get("/run/failed").text
    assert "Take it off the list" in text
    assert "Do what the error says" in text
    assert page.post("/do/drop", data={"run": "failed"}).headers["location"] == "/"
    time.sleep(0.6)
    assert "/run/failed" not in page.get("/").text
    refused = page.post("/do/drop", data={"run": "pets"}, headers=JSON)
    assert (refused.status_code, (root / "pets").is_dir()) == (400, True)


def test_the_command_line_of_a_result_makes_the_same_run(page, root, made, tmp_path):
    import shlex

    from unsee.studio.result import command_line

    words = shlex.split(command_line(read_config(root / "pets"), tmp_path / "x"))
    assert words[:2] == ["unsee", "forget"]
    assert main([*words[1:], "--no-cache"]) == 0
    assert read_result(tmp_path / "x-again").test == read_result(made).test


def test_a_new_run_is_a_guided_one_limited_by_image_queries(page, photos, root):
    where = {"data": str(photos), "model": "nowhere", "forget": "dog", "image_queries": "3,000", "skip_bad_images": "1"}
    assert "the default (guided; lcs at the paper&#39;s sizes)" in page.get("/new").text
    assert 'name="image_queries"' in page.get("/new").text
    jobs = root / ".studio" / "jobs"
    jobs.mkdir(parents=True)
    with FolderLock(jobs):  # another server has the queue, so nothing starts here
        started = page.post("/new", data=where).headers["location"]
        assert 'id="answers"' in page.get(started).text, "answers have a place before the run has begun"
    (job,) = Queue(jobs).jobs()
    assert {"--method=guided", "--image-queries=3000", "--skip-bad-images"} <= set(job.arguments)


def test_without_a_method_a_run_has_that_of_the_command_line(page, root, tmp_path):
    """The rule itself, also for many classes, is `default_method`; see tests/methods/test_guided.py."""
    many = tiny.write_images(tmp_path / "many", names=[f"class {i}" for i in range(21)], train=2, test=1)
    (root / ".studio" / "jobs").mkdir(parents=True)
    few = tiny.write_images(tmp_path / "few", names=["a", "b"], train=2, test=1)
    assert "the default (lcs)" in page.get("/new", params={"data": str(many)}).text
    with FolderLock(root / ".studio" / "jobs"):
        for data, preset, name in ((many, "tuned", "class 1"), (few, "tuned", "a"), (few, "paper", "a")):
            where = {"data": str(data), "forget": name, "preset": preset, "method": ""}
            assert page.post("/new", data=where).status_code == 303
    chosen = [next(word for word in job.arguments if "--method" in word) for job in Queue(root / ".studio/jobs").jobs()]
    assert chosen == ["--method=lcs", "--method=guided", "--method=lcs"]


def test_a_run_limited_by_image_queries_is_measured_by_them(page, root):
    folder = root / "deep" / "stopped"
    last = json.loads((folder / "journal.jsonl").read_text().splitlines()[-1])
    for run in (folder, root / "pets"):
        config = json.loads((run / "config.json").read_text())
        config["settings"] |= {"iterations": 100_000, "image_queries": 4 * last["image_queries"]}
        (run / "config.json").write_text(json.dumps(config))
    live = page.get("/run/deep/stopped").text
    assert '<progress max="100" value="25"' in live
    assert f'data-value="left">{3 * last["image_queries"]:,}<' in live
    assert 'data-value="generation">4<' in live
    assert ">generation 4<" in page.get("/").text
    assert f"--image-queries {8 * last['image_queries']}" in page.get("/run/pets").text


def test_images_are_small_and_only_those_that_are_there(page):
    found = page.get("/image/pets?part=test&row=0")
    assert found.headers["content-type"] == "image/png"
    assert page.get("/image/pets?row=99999").status_code == 400
    assert page.get("/image/pets?row=x").status_code == 400


@pytest.mark.parametrize("name", ["..%2f..%2fetc", "%2fetc", ".studio", "nothing", "%00", "pets%2f..%2f..%2f"])
def test_a_name_that_is_no_run_is_refused_in_words(page, name):
    for path in ("/run/", "/download/", "/image/", "/events/", "/front/", "/answers/"):
        answer = page.get(path + name)
        if path == "/events/" and name == "nothing":
            assert '"gone"' in answer.text
            continue
        assert answer.status_code in (400, 404), (path, answer.text)
        assert "problem" in answer.text


def test_a_missing_data_set_does_not_take_the_result_with_it(page, root):
    config = json.loads((root / "pets" / "config.json").read_text())
    config["data"]["name"] = "/nowhere/at/all"
    (root / "pets" / "config.json").write_text(json.dumps(config))
    assert page.get("/run/pets").status_code == 200
    assert "no such folder" in page.get("/image/pets?row=0", headers=JSON).json()["error"]


def test_the_handle_picks_the_very_trade_off_it_shows(page, root):
    facts = page.get("/front/pets").json()
    for i, fact in enumerate(facts):
        words = fact["command"].split()
        assert main([*words[1:], "--json", "--out", str(root.parent / f"picked-{i}")]) == 0
    last = len(facts) - 1
    assert page.post("/do/pick", data={"run": "pets", "i": str(last)}).status_code == 303
    (name,) = (root / "pets" / "picked").iterdir()
    picked, wanted = load_prompt(name), load_prompt(root.parent / f"picked-{last}")
    assert (picked.contexts == wanted.contexts).all()
    assert f"picked/{name.name}" in page.get("/run/pets").text
    assert "forget: cat" in page.get(f"/front/pets?i={last}").text
    assert page.post("/do/pick", data={"run": "pets", "i": "9999"}).status_code == 400


def test_a_downloaded_prompt_answers_as_the_page_does(page, photo, tmp_path, capsys, model_folder):
    with zipfile.ZipFile(io.BytesIO(page.get("/download/pets?what=prompt").content)) as archive:
        archive.extractall(tmp_path)
    capsys.readouterr()
    assert main(["classify", str(tmp_path / "pets"), str(photo), "--no-cache", "--json", "--top", "5"]) == 0
    said = json.loads(capsys.readouterr().out)["images"][0]
    files = {"image": ("cat.png", photo.read_bytes(), "image/png")}
    shown = page.post("/try", data={"run": "pets"}, files=files).json()
    assert [one["name"] for one in shown["before"]] == [name for name, _ in said["before"]]
    assert [one["share"] for one in shown["alone"]] == pytest.approx([sure for _, sure in said["prompt_alone"]])
    assert shown["label"] == said["label"]


def test_tables_can_be_downloaded(page, root):
    classes = page.get("/download/pets?what=classes").text.splitlines()
    assert len(classes) == 1 + 4
    assert len(page.get("/download/pets?what=answers").text.splitlines()) == 1 + 20
    assert page.get("/download/pets?what=nothing").status_code == 400


def test_an_image_is_tried_under_labels_of_ones_own(page, photo, root):
    def ask(content, labels=""):
        files = {"image": ("x.png", content, "image/png")}
        return page.post("/try", data={"run": "pets", "labels": labels}, files=files, headers=JSON)

    before = sorted(root.rglob("*"))
    found = ask(photo.read_bytes(), f"cat, dog, a teapot, {SCRIPT_CLASS}").json()
    assert {one["name"] for one in found["before"]} == {"cat", "dog", "a teapot", SCRIPT_CLASS}
    assert all(one["name"] not in ("cat", SCRIPT_CLASS) for one in found["served"])
    assert "at least two labels" in ask(photo.read_bytes(), "cat").json()["error"]
    assert "to be forgotten" in ask(photo.read_bytes(), f"cat,{SCRIPT_CLASS}").json()["error"]
    assert sorted(root.rglob("*")) == before, "nothing is stored"


def test_what_is_no_image_or_too_large_is_refused_in_words(page, large_photo):
    large = large_photo.read_bytes()
    for content, words in ((b"some text", "not an image"), (large, "million pixels"), (b"", "the file is empty")):
        files = {"image": ("x.png", content, "image/png")}
        answer = page.post("/try", data={"run": "pets"}, files=files, headers=JSON)
        assert answer.status_code == 400
        assert words in answer.json()["error"]


def test_what_the_model_knows_and_what_a_run_will_cost_are_said_before(page, photos, model_folder):
    where = {"data": str(photos), "model": str(model_folder)}
    known = page.get("/known", params=where).json()
    assert set(known["known"]) == {"cat", "dog", "deer", SCRIPT_CLASS}
    assert all(0 <= right <= seen for right, seen in known["known"].values())
    assert known["unreadable"] == []
    cost = page.post("/forecast", data={**where, "forget": "cat", "iterations": "3", "price": "0.5"}).json()
    assert int(cost["queries"].replace(",", "")) > 0
    assert float(cost["price"]) == pytest.approx(int(cost["queries"].replace(",", "")) / 2000, abs=0.01)
    assert page.post("/forecast", data={**where, "price": "dear"}, headers=JSON).status_code == 400


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "no class is ticked"),
        ({"forget": "unicorn"}, "unknown class"),
        ({"forget": "../../x"}, "unknown class"),
        ({"forget": "<script>alert(2)</script>"}, "&lt;script&gt;alert(2)&lt;"),
        ({"forget": ["cat", "dog", "deer", SCRIPT_CLASS]}, "at least one must be kept"),
        ({"forget": "cat", "iterations": "many"}, "iterations is a whole number"),
        ({"forget": "cat", "method": "magic"}, "unknown method"),
    ],
)
def test_a_run_that_could_not_start_is_refused_in_words(page, photos, fields, words, root):
    answer = page.post("/new", data={"data": str(photos), **fields})
    assert answer.status_code == 400
    assert words in answer.text
    assert not list((root / ".studio").glob("jobs/*.json"))


def test_a_run_that_left_bad_images_out_shows_the_others(page, photos, root, model_folder, tmp_path):
    copy = shutil.copytree(photos, tmp_path / "images")
    (copy / "test" / "dog" / "001.png").write_text("no image")
    options = ["--forget=cat", "--iterations=2", "--shots=2", f"--model={model_folder}", "--skip-bad-images"]
    assert main(["forget", str(copy), *options, "--no-cache", f"--out={root / 'fewer'}"]) == 0
    found = [page.get(f"/image/fewer?part=test&row={row}").status_code for row in (0, 18, 19)]
    assert found == [200, 200, 400], "20 images, one of them left out"


def finished(client, path, state, seconds=120):
    for _ in range(seconds * 5):
        text = client.get(path).text
        if f'class="state {state}"' in text or (state == "finished" and "Before and after" in text):
            return text
        time.sleep(0.2)
    raise AssertionError(text)


@pytest.mark.slow
def test_a_failed_job_says_why_and_the_next_one_starts(tmp_path):
    queue = Queue(tmp_path / "jobs")
    bad, good = tmp_path / "bad", tmp_path / "good"
    queue.add(bad, ["runs", str(tmp_path / "nowhere")])
    queue.add(good, ["runs", str(tmp_path)])
    taken = queue.add(tmp_path / "third", ["runs", str(tmp_path)])
    queue.stop(tmp_path / "third")
    for _ in range(600):
        queue.tick()
        if all(job.ended for job in queue.jobs()):
            break
        time.sleep(0.1)
    assert "is not a folder" in queue.problem(queue.of(bad))
    assert queue.problem(queue.of(good)) == ""
    assert queue.of(tmp_path / "third").pid is None, "it was taken out of the queue"
    assert [job.id for job in queue.jobs()][-1] == taken.id
    queue.drop(good)
    assert queue.of(good) is None
    queue.add(good, ["runs", str(tmp_path)])
    with pytest.raises(InputError, match="stop it first"):
        queue.drop(good)
    queue.stop(good)


def test_a_stream_is_taken_up_again_after_the_last_event_that_was_seen(root):
    folder = root / "deep" / "stopped"
    states = iter(["running", "running", "interrupted"])

    async def collect(after, state=lambda: next(states)):
        return [event async for event in journal_events(folder, after, state, lambda: read_config(folder))]

    events = "".join(asyncio.run(collect(1)))
    assert "id: 1\n" not in events
    assert [line for line in events.splitlines() if line.startswith("id:")] == ["id: 2", "id: 3", "id: 4"]
    numbers = json.loads(events.partition("event: generation\ndata: ")[2].partition("\n")[0])
    assert numbers["generation"] == "2 of 4"
    assert events.rstrip().endswith('data: {"state": "interrupted"}')
    shorter = "".join(asyncio.run(collect(99, lambda: "interrupted")))
    assert "event: again" in shorter, "another run has taken its place"
    assert shorter.count("event: generation") == 4


def test_the_answers_of_a_running_run_follow_its_best_prompt(page, root):
    text = page.get("/answers/deep/stopped").text
    assert "costs the run no query" in text
    assert "forget: cat" in text
    (root / "deep" / "stopped" / "checkpoint.jsonl").write_text("")
    assert "no answers to show yet" in page.get("/answers/deep/stopped", headers=JSON).json()["error"]


@pytest.mark.slow
def test_a_run_is_started_stopped_and_resumed_and_ends_as_on_the_command_line(root, model_folder, photos, tmp_path):
    app, visitors = open_app(root, options=["--no-cache"])
    with open_client(app) as client:
        client.get(f"/?token={visitors.token}")
        fields = {"data": str(photos), "model": str(model_folder), "forget": "dog", "shots": "2", "iterations": "300"}
        where = client.post("/new", data=fields).headers["location"]
        finished(client, where, "running")
        second = client.post("/new", data={**fields, "iterations": "4"}).headers["location"]
        assert second == where + "-2"
        assert 'class="state waiting"' in client.get(second).text
        assert client.post("/do/stop", data={"run": where.removeprefix("/run/")}).status_code == 303
        finished(client, where, "interrupted")
        finished(client, second, "finished")
        assert client.post("/do/resume", data={"run": where.removeprefix("/run/")}).status_code == 303
        finished(client, where, "finished")
    own = tmp_path / "own"
    options = ["--forget=dog", "--shots=2", "--iterations=300", f"--model={model_folder}", "--no-cache", f"--out={own}"]
    assert main(["forget", str(photos), *options]) == 0
    assert (own / "prompt.safetensors").read_bytes() == (
        root / where.removeprefix("/run/") / "prompt.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_a_report_can_be_downloaded(page):
    assert "<html" in page.get("/download/pets?what=report").text


def test_two_runs_are_compared(page, root):
    shutil.copytree(root / "pets", root / "again")
    text = page.get("/compare", params={"run": ["pets", "again"]}).text
    assert "the same settings" in text
    assert page.get("/compare", params={"run": ["pets"]}).status_code == 400
    assert page.get("/compare", params={"run": ["pets", "deep/stopped"]}).status_code in (400, 404)


def test_the_command_refuses_what_it_cannot_serve(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["studio", str(tmp_path / "file")]) == 1
    assert "is a file" in capsys.readouterr().err
    assert main(["studio", str(tmp_path), "--host", "0.0.0.0"]) == 1
    assert "--key-file" in capsys.readouterr().err
    assert "torch" in sys.modules
