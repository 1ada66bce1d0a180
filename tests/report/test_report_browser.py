"""The report in a real browser: nothing fetched, nothing complained of, nothing wider than a phone."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.report.test_report import runs  # noqa: F401
from unsee.report.html import write_report

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="no browser: apt-get install chromium chromium-driver"
)


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module", params=[pytest.param("one run", marks=pytest.mark.slow), "several"])
def opened(request, browser, runs, tmp_path_factory):  # noqa: F811
    folders = list(runs.values())
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report(folders[:1] if request.param == "one run" else folders, out)
    for kind in ("browser", "performance"):
        browser.get_log(kind)  # what went before
    browser.get(out.as_uri())
    return browser


def test_it_opens_without_a_complaint_or_a_request(opened):
    assert opened.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert any(url.startswith("file:") for url in asked), "the log must hold the page itself"
    assert [url[:80] for url in asked if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in asked) == 1


def test_every_image_has_loaded(opened):
    sizes = opened.execute_script("return [...document.images].map(i => i.complete && i.naturalWidth)")
    assert len(sizes) >= 4
    assert all(sizes)


def test_a_class_called_script_does_not_run(opened):
    from selenium.webdriver.common.alert import Alert

    assert opened.execute_script("return document.scripts.length") == 0
    with pytest.raises(Exception, match="no such alert"):
        Alert(opened).dismiss()


@pytest.mark.parametrize("width", [400, pytest.param(800, marks=pytest.mark.slow), 1300])
def test_the_page_is_never_wider_than_the_window(opened, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    script = "const d = document; return [d.documentElement.scrollWidth, d.body.scrollWidth, innerWidth]"
    *widths, inner = opened.execute_script(script)
    assert inner == width
    assert max(widths) <= width


WRAPPED = """return [...document.querySelectorAll('td, tbody th')].filter(cell => {
  const text = document.createRange(); text.selectNodeContents(cell);
  return cell.innerText && cell.innerText.length <= 16 && text.getClientRects().length > 1;
}).map(cell => cell.innerText)"""
SHRUNK = "return [...document.querySelectorAll('img.chart')].map(i => i.clientWidth / i.naturalWidth)"


@pytest.mark.parametrize("width", [390, 1280])
def test_short_cells_keep_to_one_line_and_charts_stay_readable(opened, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert opened.execute_script(WRAPPED) == []
    assert all(each == 0 or each > 0.75 for each in opened.execute_script(SHRUNK))  # 0: folded
