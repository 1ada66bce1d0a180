"""The page in a real browser. Every broken policy, console message and request to another place fails a test."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
import zipfile

import pytest

from tests.studio.browsing import Served, Visitor, needs_browser, open_browser
from tests.studio.conftest import open_app
from unsee.data.demo import load_demo

pytestmark = needs_browser
STATUS = "the server responded with a status of 4"  # what a browser notes of a refusal


@pytest.fixture(scope="module")
def driver():
    found = open_browser()
    yield found
    found.quit()


@pytest.fixture
def near(root, model, driver):
    """The page of ready runs, served by this process."""
    from unsee.serve.server import listen
    from unsee.studio.hosting import make_page_server

    app, visitors = open_app(root, model)
    opened = listen("127.0.0.1", 0)
    server = make_page_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
    thread.start()
    visitor = Visitor(driver, f"http://127.0.0.1:{opened.getsockname()[1]}")
    visitor.forget_logs()
    visitor.open(f"/?token={visitors.token}")
    yield visitor
    driver.get("about:blank")
    server.should_exit = True
    thread.join(20)


@pytest.fixture(scope="module")
def far(driver, tmp_path_factory, demo_features):
    """An empty folder of runs, served by a process of its own; a visitor, let in."""
    served = Served(tmp_path_factory.mktemp("studio") / "runs", demo_features)
    visitor = Visitor(driver, served.base)
    visitor.forget_logs()
    visitor.open(served.start())
    visitor.served = served
    yield visitor
    driver.get("about:blank")
    served.end()


def test_pages_open_without_a_complaint_and_names_do_not_run(near):
    near.size(400)
    for path in ("/", "/run/pets", "/run/deep/stopped", "/try"):
        near.open(path)
        near.wait(lambda: near.driver.execute_script("return document.readyState") == "complete", "it is loaded")
        wide, inner = near.driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert (path, wide) <= (path, inner)
    near.open("/run/pets")
    near.wait(lambda: near.all("#trade-shots li"), "answers of a trade-off")
    before = near.text("#trade-now")
    near.find("#handle").send_keys("\ue012" * 50)  # left, to the end
    near.wait(lambda: near.text("#trade-now") != before or len(near.all("circle")) == 1, "scores follow")
    assert near.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(near, scheme, photo, root):
    near.scheme(scheme)
    near.size(1200)
    near.open("/compare?run=pets&run=pets")
    for path in ("/", "/?q=nothing", "/new", "/run/pets", "/run/deep/stopped", "/run/damaged", "/try", "/nothing"):
        near.open(path)
        time.sleep(1)
        assert (path, near.axe()) == (path, [])
    near.open("/compare?run=pets&run=pets")
    assert near.axe() == []
    near.open("/try")
    near.drop("#drop", "cat.png", photo.read_bytes())
    near.wait(lambda: near.all("#answer meter"), "an answer")
    assert near.axe() == []
    near.driver.delete_all_cookies()
    near.open("/")
    assert near.axe() == []


def begin(far, names, iterations):
    """Waits until a new run can be started, ticks classes and says how long."""
    far.wait(lambda: "recognises" in far.text(".cards"), "what the model knows")
    for name in names:
        far.click(f'input[value="{name}"]')
    far.wait(lambda: "Image queries" in far.text("#forecast"), "the forecast")
    far.find("input[name=iterations]").send_keys(str(iterations))


def generation(far):
    return int(far.text("[data-value=generation]").partition(" ")[0].replace(",", "") or 0)


@pytest.mark.slow
def test_a_run_by_mouse_survives_a_reload_and_a_killed_server(far, tmp_path):
    far.open("/")
    assert "No runs yet" in far.text()
    far.click("a.button.main")
    begin(far, ["cat"], 250)
    assert far.complaints() == []
    far.click("#new button.main")
    far.wait(lambda: generation(far) >= 3, "numbers")
    seen = generation(far)
    far.wait(lambda: generation(far) > seen, "numbers that move")
    far.wait(lambda: far.all("#answers li"), "answers to validation images")
    assert len(far.all("#live polyline")) == 2
    far.driver.refresh()
    assert generation(far) >= seen
    assert far.complaints() == []
    far.served.kill()
    time.sleep(3)
    far.served.start()
    seen = generation(far)
    done = "Before and after"  # a slow machine may have finished the run meanwhile
    far.wait(lambda: generation(far) > seen or done in far.text(), "the stream, taken up again without a reload")
    far.wait(lambda: done in far.text(), "the result, by itself")
    far.driver.execute_script("window.broken = window.broken ?? []")
    assert far.complaints("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "Failed to fetch") == []
    (run,) = (path for path in far.served.root.iterdir() if not path.name.startswith("."))
    own = tmp_path / "own"
    words = ["forget", "demo", "--forget=cat", "--iterations=250", f"--cache-dir={far.served.cache}", f"--out={own}"]
    assert subprocess.run([sys.executable, "-m", "unsee", *words], check=False).returncode == 0
    assert (own / "prompt.safetensors").read_bytes() == (run / "prompt.safetensors").read_bytes()


@pytest.mark.slow
def test_the_front_is_dragged_a_prompt_saved_and_used_on_the_command_line(far, tmp_path):
    from selenium.webdriver.common.action_chains import ActionChains

    far.open("/")
    far.click("#rows a")
    far.wait(lambda: far.text("[data-value=acc_mem]") != "–", "the trade-offs")
    points = far.all("#trade circle")
    assert len(points) > 1
    far.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", points[0])
    ActionChains(far.driver).move_to_element(points[-1]).click_and_hold().move_to_element(points[0]).release().perform()
    first = far.text("#trade-now")
    assert far.find("#handle").get_attribute("value") == "0"
    far.find("#handle").send_keys("\ue014")  # right
    far.wait(lambda: far.find("#handle").get_attribute("value") == "1" and far.text("#trade-now") != first, "a step")
    far.wait(lambda: "cost the run no query" in far.text("#trade-shots"), "answers")
    far.click("#trade form button:not([type])")
    far.wait(lambda: "Saved prompts" in far.text(), "the saved prompt")
    far.click('a[href*="/picked/"][href^="/try"]')
    image = tmp_path / "cat.png"
    data = load_demo().test
    data.read(int((data.labels == data.class_names.index("cat")).argmax())).save(image)
    far.drop("#drop", "cat.png", image.read_bytes())
    far.wait(lambda: len(far.all("#answer section")) == 3, "answers")
    shown = far.text("#answer section:nth-child(2) li span")
    prompt = tmp_path / "prompt"
    name = far.find("select[name=run]").get_attribute("value")
    cookies = {one["name"]: one["value"] for one in far.driver.get_cookies()}
    import httpx

    answer = httpx.get(f"{far.base}/download/{name}?what=prompt", cookies=cookies)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(prompt)
    (folder,) = prompt.iterdir()
    words = [sys.executable, "-m", "unsee", "classify", str(folder), str(image), "--json", "--no-cache"]
    said = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["images"][0]
    label, sure = said["prompt_alone"][0]
    assert shown == f"{label} {100 * sure:.1f}%"
    far.driver.execute_script("document.querySelector('textarea').value = 'cat, a teapot, a lamp'")
    far.driver.execute_script("document.querySelector('textarea').dispatchEvent(new Event('change', {bubbles: true}))")
    far.wait(lambda: "teapot" in far.text("#answer"), "labels of one's own")
    assert far.complaints() == []


@pytest.mark.slow
def test_a_run_by_keyboard_alone(far):
    far.open("/")
    far.tab_to('nav a[href="/new"]')
    far.press("\ue007")
    far.wait(lambda: "recognises" in far.text(".cards"), "what the model knows")
    far.tab_to('input[value="dog"]')
    far.press(" ")
    far.tab_to("input[name=iterations]")
    far.press("4", "0")
    far.tab_to("#new button.main")
    far.press("\ue007")
    far.wait(lambda: "/run/" in far.driver.current_url, "the run's page")
    far.wait(lambda: generation(far) >= 2 or "Before and after" in far.text(), "numbers")
    far.wait(lambda: "Before and after" in far.text(), "the result")
    assert far.complaints() == []


@pytest.mark.slow
def test_two_tabs_follow_a_run_that_the_command_line_started(far):
    far.open("/")
    first = far.driver.current_window_handle
    out = far.served.root / "from-the-command-line"
    words = ["forget", "demo", "--forget=ship", "--iterations=150", f"--cache-dir={far.served.cache}", f"--out={out}"]
    child = subprocess.Popen([sys.executable, "-m", "unsee", *words], stderr=subprocess.DEVNULL)
    try:
        far.wait(lambda: "from-the-command-line" in far.text("#rows"), "the run in the list, without a reload")
        far.driver.switch_to.new_window("tab")
        far.open("/run/from-the-command-line")
        assert "Ctrl-C there" in far.text()
        seen = generation(far)
        far.wait(lambda: generation(far) > seen, "numbers that move")
        far.driver.switch_to.window(first)
        far.wait(lambda: "✓" in far.text("#rows") or "finished" in far.text("#rows tr"), "its end in the list")
        assert far.complaints() == []
        far.driver.switch_to.window(next(w for w in far.driver.window_handles if w != first))
        far.wait(lambda: "Before and after" in far.text(), "the result in the other tab")
        assert far.complaints() == []
        far.driver.close()
        far.driver.switch_to.window(first)
    finally:
        child.wait(240)


@pytest.mark.slow
def test_bad_files_are_answered_in_words(near):
    def zipped(**files):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return out.getvalue()

    image = io.BytesIO()
    load_demo().test.read(0).save(image, "PNG")
    near.open("/new")
    bomb = zipped(**{"cat/1.png": bytes(150 * 2**20)})
    for content, words in (
        (b"no zip", "cannot be unpacked"),
        (bomb, "150 MB"),
        (zipped(**{"../x.png": b"x"}), "leads out"),
    ):
        near.drop("#drop", "photos.zip", content, "application/zip")
        near.wait(lambda words=words: words in near.text("#sending"), words)
    near.drop("#drop", "notes.txt", b"hello", "text/plain")
    near.wait(lambda: "no images in it" in near.text("#sending"), "words about a text file")
    twice = {f"{name}/{i}.png": image.getvalue() for name in ("a b", "a_b", "c") for i in range(3)}
    near.drop("#drop", "twice.zip", zipped(**twice), "application/zip")
    near.wait(lambda: "stands for two classes" in near.text(), "words about two folders of one name")
    near.open("/new")
    own = {f"{name}/{i}.png": image.getvalue() for name in ("<img src=x onerror=alert(1)>", "b") for i in range(3)}
    near.drop("#drop", "own.zip", zipped(**own), "application/zip")
    near.wait(lambda: "<img src=x" in near.text(".cards"), "a class of this name")
    near.open("/try")
    near.drop("#drop", "notes.txt", b"hello", "text/plain")
    near.wait(lambda: "not an image" in near.text("#answer"), "words about a text file")
    script = """
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(200 * 2 ** 20)], "large.png", {type: "image/png"}));
        document.querySelector("#drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
    """
    near.driver.execute_script(script)
    near.wait(lambda: "200 MB" in near.text("#answer"), "words about a large image")
    assert near.complaints(STATUS) == []
