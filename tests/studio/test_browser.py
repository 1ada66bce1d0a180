"""The page in a real browser. Every broken policy, console message and request to another place fails a test."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
import zipfile

import pytest

from tests.studio.browsing import Served, Visitor, needs_browser, open_browser, watched
from tests.studio.conftest import open_app
from unsee.cli import main
from unsee.data.demo import load_demo
from unsee.runs.lock import FolderLock
from unsee.studio.jobs import Queue

pytestmark = needs_browser
STATUS = "the server responded with a status of 4"  # what a browser notes of a refusal


@pytest.fixture(scope="module")
def driver():
    found = open_browser()
    yield found
    found.quit()


@contextlib.contextmanager
def serving(driver, root, model, **options):
    """The page of these runs, served by this process, and a visitor who was let in."""
    from unsee.serve.server import listen
    from unsee.studio.hosting import make_page_server

    app, visitors = open_app(root, model, **options)
    opened = listen("127.0.0.1", 0)
    server = make_page_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
    thread.start()
    visitor = Visitor(driver, f"http://127.0.0.1:{opened.getsockname()[1]}")
    visitor.forget_logs()
    visitor.open(f"/?token={visitors.token}")
    try:
        yield visitor
    finally:
        driver.get("about:blank")
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def near(root, model, driver):
    """The page of ready runs."""
    with serving(driver, root, model) as visitor:
        yield visitor


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


def test_a_page_is_printed_dark_on_light_without_buttons(near):
    near.open("/run/pets")
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    look = """
        const style = (css) => getComputedStyle(document.querySelector(css));
        return [style("body").color, style("nav").display, style(".button").display];
    """
    try:
        near.scheme("dark")
        assert near.driver.execute_script(look)[0] == "rgb(232, 234, 238)"
        near.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
        assert near.driver.execute_script(look) == ["rgb(26, 28, 32)", "none", "none"]
    finally:
        near.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("document.body.setAttribute('style', 'color: red')", "policy: style-src-attr"),
        ("new Image().src = 'http://127.0.0.1:9/x.png'", "policy: img-src http://127.0.0.1:9/x.png"),
        (
            "const s = document.createElement('script'); s.text = '1'; document.body.append(s)",
            "policy: script-src-elem",
        ),
        ("console.error('this went wrong')", "this went wrong"),
        ("fetch('/nothing')", "404"),
    ],
)
def test_what_a_page_must_not_do_would_be_noticed(near, script, words):
    near.driver.execute_script(script)
    time.sleep(0.3)
    near.open("/try")  # also what was done on the page before
    near.wait(lambda: any(words in each for each in near.complaints()), words, 20)


def test_a_request_to_another_place_would_be_noticed(near):
    near.open(near.base.replace("127.0.0.1", "localhost") + "/static/icon.svg")
    assert any("localhost" in each for each in near.complaints())


@pytest.mark.slow
def test_axe_finds_nothing_serious_on_any_page(driver, root, model, photo, tmp_path):
    """Each page in each state, light and dark, wide and phone: also while a run runs, waits or has failed, and where
    there is nothing to show."""
    shutil.copytree(root / "deep" / "stopped", root / "running")
    assert main(["audit", str(root / "pets"), "--no-cache"]) == 0
    assert main(["pick", str(root / "pets"), "--acc-mem", "0"]) == 0
    queue = Queue(root / ".studio" / "jobs")
    queue.add(root / "failed", ["forget", "nothing", "--forget=cat"])
    while not all(job.ended for job in queue.jobs()):
        queue.tick()
        time.sleep(0.1)
    paths = ["/", "/?q=nothing", "/new", "/new?folder=/nowhere", "/try", "/nothing", "/compare?run=pets&run=pets"]
    paths += [f"/run/{name}" for name in ("pets", "running", "deep/stopped", "damaged", "failed", "waiting")]

    def check(visitor, path=""):
        if path:
            visitor.open(path)
            time.sleep(1)
        for scheme, width in itertools.product(("light", "dark"), (1280, 390)):
            visitor.scheme(scheme)
            visitor.size(width)
            assert (path, scheme, width, visitor.axe()) == (path, scheme, width, [])
            wider = visitor.driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
            assert (path, width, max(0, wider)) == (path, width, 0), "the page is wider than the window"
        assert visitor.complaints(STATUS) == []

    with serving(driver, root, model) as near, FolderLock(queue.folder), FolderLock(root / "running"):
        queue.add(root / "waiting", ["forget", "demo", "--forget=cat"])
        for path in paths:
            check(near, path)
        near.open("/try")
        near.drop("#drop", "cat.png", photo.read_bytes())
        near.wait(lambda: near.all("#answer meter"), "an answer")
        check(near)
        near.open("/new")
        near.click(".cards input")
        near.wait(lambda: "Image queries" in near.text("#forecast"), "the forecast")
        near.click("details.more summary")
        check(near)
        near.driver.delete_all_cookies()
        check(near, "/")
        queue.stop(root / "waiting")
    with serving(driver, tmp_path / "none", model) as near:
        for path in ("/", "/try"):
            check(near, path)
    with serving(driver, tmp_path / "keyed", model, key="k" * 20) as near:
        near.driver.delete_all_cookies()
        check(near, "/")


def begin(far, names, iterations):
    """Waits until a new run can be started, ticks classes and says how long."""
    far.wait(lambda: "recognises" in far.text(".cards"), "what the model knows")
    for name in names:
        far.click(f'input[value="{name}"]')
    far.wait(lambda: "Image queries" in far.text("#forecast"), "the forecast")
    far.click("details.more summary")
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
    far.wait(lambda: "costs the run no query" in far.text("#trade-shots"), "answers")
    far.click("#trade form button:not([type])")
    far.wait(lambda: "Saved prompts" in far.text(), "the saved prompt")
    archive = far.download('a[href*="/picked/"][href^="/download"]', tmp_path / "downloads")
    far.click('a[href*="/picked/"][href^="/try"]')
    image = tmp_path / "cat.png"
    data = load_demo().test
    data.read(int((data.labels == data.class_names.index("cat")).argmax())).save(image)
    assert "/picked/" in far.find("select[name=run]").get_attribute("value")
    far.carry("#drop", image)
    far.wait(lambda: len(far.all("#answer section")) == 3, "answers")
    shown = [[li.text for li in part.find_elements("css selector", "li span")] for part in far.all("#answer section")]
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tmp_path / "prompt")
    (folder,) = (tmp_path / "prompt").iterdir()
    words = [sys.executable, "-m", "unsee", "classify", str(folder), str(image), "--top=5", "--json", "--no-cache"]
    said = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["images"][0]
    for column, way in zip(shown, ("before", "prompt_alone"), strict=False):
        assert column == [f"{label} {100 * sure:.1f}%" for label, sure in said[way]]
    label, sure = said["after"][0]
    assert shown[2][0] == f"{label} {100 * sure:.0f}%"
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
    far.tab_to("details.more summary")
    far.press("\ue007")
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
        watched(far.driver)
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
def test_bad_files_are_answered_in_words(near, photos, tmp_path):
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
    near.open("/new")
    near.drop("#drop", "large.png", b"", "image/png", 200 * 2**20)
    near.wait(lambda: "large.png has 200 MB" in near.text("#sending"), "words about a large image")
    broken = shutil.copytree(photos, tmp_path / "my photos ü")
    min((broken / "train" / "dog").iterdir()).write_bytes(b"")
    near.open("/new")
    near.find("input[name=folder]").send_keys(str(broken))
    near.click(".filters button")
    near.wait(lambda: "the file is empty" in near.text("#known"), "words about an image that cannot be read")
    near.wait(lambda: "recognises" in near.text(".cards"), "what the model knows of the others")
    near.open("/try")
    near.drop("#drop", "notes.txt", b"hello", "text/plain")
    near.wait(lambda: "not an image" in near.text("#answer"), "words about a text file")
    near.drop("#drop", "large.png", b"", "image/png", 200 * 2**20)
    near.wait(lambda: "200 MB" in near.text("#answer"), "words about a large image")
    assert near.complaints(STATUS) == []


@pytest.mark.slow
def test_a_folder_is_dropped_and_an_image_pasted(near, photos, photo):
    """A folder as the file manager drags it, with files in it that are no images."""
    from selenium.webdriver.support.ui import Select

    (photos / "notes.txt").write_text("notes")
    near.open("/new")
    near.carry("#drop", photos)
    near.wait(lambda: len(near.all(".cards li")) == 4, "its classes")
    assert f"{photos.name}-" in near.text("select[name=data] option:checked")
    near.open(f"/new?folder={photos}")
    assert not near.find("#other").is_displayed()
    Select(near.find("select[name=data]")).select_by_visible_text("demo")
    near.wait(lambda: "Look at the classes" in near.find("#other").text, "words about classes that were not chosen")
    assert not near.find("#new button.main").is_enabled()
    near.click(".filters button")
    near.wait(lambda: len(near.all(".cards li")) == 10, "the classes of what was chosen last")
    near.open("/try")
    paste = """
        const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from(arguments[0])], "image.png", {type: "image/png"}));
        document.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true}));
    """
    near.driver.execute_script(paste, list(photo.read_bytes()))
    near.wait(lambda: len(near.all("#answer section")) == 3, "answers")
    assert near.complaints() == []
