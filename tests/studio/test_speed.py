"""Large folders: pages are painted within a second and stay small, and the server's memory stays as it is."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import httpx
import numpy as np
import pytest
from safetensors.numpy import save

from tests.studio.browsing import Served, Visitor, needs_browser, open_browser
from unsee.data import load_data

pytestmark = pytest.mark.slow
CLASSES, PER_CLASS = 100, 100
MOST_BYTES = 2 * 10**6
MOST_SECONDS = 1.0
TIMES = 3  # the machine may be busy with other things: the best of these counts
PAINT = """
    const [page] = performance.getEntriesByType('navigation');
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    const images = performance.getEntriesByType('resource').filter(one => one.initiatorType === 'img');
    const bytes = [page, ...performance.getEntriesByType('resource')].reduce((sum, one) => sum + one.transferSize, 0);
    return paint && [paint.startTime / 1000, bytes, images.length];
"""


@pytest.fixture
def serve(tmp_path):
    """Starts `unsee studio` in a process of its own; it is ended after the test."""
    started: list[Served] = []

    def start(root: Path) -> Served:
        started.append(Served(root, tmp_path / "cache"))
        return started[-1]

    yield start
    for served in started:
        served.end()


@pytest.fixture(scope="module")
def driver():
    found = open_browser()
    yield found
    found.quit()


def first_paint(driver, served: Served, path: str) -> tuple[float, float, int, int]:
    """Seconds until a page has content: just after the server has started, and again; its bytes and images then."""
    cold, warm, bytes_sent, images = [], [], 0, 0
    visitor = Visitor(driver, served.base)
    visitor.size(1280)
    driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    for _ in range(TIMES):
        address = served.start()
        token = address.partition("?")[2]
        for times in (cold, warm, warm):
            if times is cold:  # the token leads to the list, which would warm the server: only its cookie is taken
                answer = httpx.get(f"{served.base}/?{token}")
                name, value = next(iter(answer.cookies.items()))
                driver.get(f"{served.base}/static/icon.svg")
                driver.add_cookie({"name": name, "value": value})
            visitor.open(path)
            seconds, bytes_sent, images = visitor.wait(lambda: driver.execute_script(PAINT), "the first paint", 60)
            times.append(seconds)
        visitor.forget_logs()
        if len(cold) < TIMES:
            served.end()
    print(f"{path}: first paint {min(cold):.2f} s after a start of the server ({sorted(cold)}), then {min(warm):.2f} s")
    print(f"{bytes_sent:,.0f} bytes, {images} images loaded")
    return min(cold), min(warm), int(bytes_sent), images


@needs_browser
def test_a_thousand_runs_are_painted_within_a_second(driver, serve, made, tmp_path):
    root = tmp_path / "runs"
    for i in range(1000):
        shutil.copytree(made, root / f"{i % 20:02d}" / f"run-{i:04d}", copy_function=os.link)
    cold, warm, sent, _ = first_paint(driver, serve(root), "/")
    assert len(driver.find_elements("css selector", "#rows tr")) == 1000
    assert sent <= MOST_BYTES
    assert cold <= MOST_SECONDS
    assert warm <= MOST_SECONDS


@pytest.fixture
def large(made, photo, tmp_path):
    """A finished run of 100 classes and 10,000 test images."""
    names = [f"class {i:03d}" for i in range(CLASSES)]
    for part, count in (("train", 4), ("test", PER_CLASS)):
        for name in names:
            folder = tmp_path / "photos" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                os.link(photo, folder / f"{i}.png")
    run = Path(shutil.copytree(made, tmp_path / "runs" / "large"))
    labels = np.repeat(np.arange(CLASSES), PER_CLASS)
    answers = np.random.default_rng(0).integers(0, CLASSES, len(labels))
    arrays = {f"answers_{when}": answers for when in ("before", "after", "served")} | {"labels": labels}
    arrays |= {f"sure_{when}": np.full(len(labels), 0.5, np.float32) for when in ("before", "after", "served")}
    (run / "answers.safetensors").write_bytes(save(arrays))
    config, result = (json.loads((run / name).read_text()) for name in ("config.json", "result.json"))
    data = load_data(tmp_path / "photos")
    config |= {"class_names": names, "forget": names[:40]}
    config["data"] |= {"name": str(tmp_path / "photos"), "fingerprint": data.listing, "split_seed": None}
    share = {"before": 0.5, "after": 0.25, "served": 0.25}
    result |= {"forget": names[:40], "data": str(tmp_path / "photos"), "per_class": dict.fromkeys(names, share)}
    (run / "config.json").write_text(json.dumps(config))
    (run / "result.json").write_text(json.dumps(result))
    return tmp_path / "runs"


@needs_browser
def test_a_result_of_ten_thousand_images_is_painted_within_a_second(driver, serve, large):
    cold, warm, sent, images = first_paint(driver, serve(large), "/run/large?show=keep")
    assert "6,000 images" in driver.page_source
    shown = driver.find_elements("css selector", "#shots img")
    assert len(shown) == len(driver.find_elements("css selector", "#shots img[loading=lazy]")) > 10
    assert images <= len(shown) + 2, "thumbnails of this page of images alone, and the sign at the top"
    assert sent <= MOST_BYTES
    for image in shown:
        driver.execute_script("arguments[0].scrollIntoView()", image)
    Visitor(driver, "").wait(lambda: driver.execute_script(PAINT)[2] >= len(shown), "the rest of them", 30)
    assert driver.execute_script(PAINT)[1] <= MOST_BYTES
    assert cold <= MOST_SECONDS
    assert warm <= MOST_SECONDS


def test_memory_stays_as_it_is_over_ten_thousand_pages(serve, root):
    served = serve(root)
    address = served.start()
    pages = (
        "/",
        "/run/pets",
        "/run/deep/stopped",
        "/image/pets?row=3",
        "/front/pets",
        "/try",
        "/new",
        "/front/pets?i=0",
    )

    def resident() -> int:
        assert served.process is not None
        return int(Path(f"/proc/{served.process.pid}/statm").read_text().split()[1])

    with httpx.Client(base_url=served.base, follow_redirects=True, timeout=60) as client:
        assert client.get(address).status_code == 200

        def load(times: int) -> None:
            for i in range(times):
                assert client.get(pages[i % len(pages)]).status_code == 200

        load(500)
        before = resident()
        load(10_000)
        after = resident()
    print(f"resident pages after 500 loads {before}, after 10,500 {after}: {after / before:.3f}")
    assert after <= 1.1 * before
