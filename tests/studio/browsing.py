"""A real browser, and the page's server as a process of its own, for the tests that need both."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="no browser: apt-get install chromium chromium-driver"
)
WATCH = """
    addEventListener("securitypolicyviolation", e => {  // kept from page to page
        const seen = JSON.parse(sessionStorage.broken ?? "[]");
        sessionStorage.broken = JSON.stringify([...seen, `${e.violatedDirective} ${e.blockedURI}`]);
    });
"""
AXE = Path(__file__).parent / "axe" / "axe.min.js.gz"


def open_browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return watched(webdriver.Chrome(options=options, service=Service(DRIVER)))


def watched(driver):
    """The browser, whose current tab notes broken policies from now on."""
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    return driver


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Served:
    """`unsee studio`, in a process that can be killed and started again on the same port."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self.cache, self.port = root, cache, free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """The address that it prints."""
        words = [sys.executable, "-m", "unsee", "studio", str(self.root), "--no-browser", f"--port={self.port}"]
        self.process = subprocess.Popen(
            [*words, f"--cache-dir={self.cache}"], stderr=subprocess.PIPE, text=True, env=os.environ
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line + self.process.stderr.read()
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        return found[0]

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.communicate(timeout=30)
        for path in (self.root / ".studio" / "jobs").glob("*.json"):
            job = json.loads(path.read_text())
            if job["pid"] and not job["ended"] and Path(f"/proc/{job['pid']}").exists():
                os.kill(job["pid"], signal.SIGTERM)


class Visitor:
    """What a person does in a browser."""

    def __init__(self, driver, base: str) -> None:
        self.driver, self.base = driver, base

    def open(self, path: str) -> None:
        self.driver.get(path if path.startswith("http") else self.base + path)

    def find(self, css: str):
        return self.driver.find_element("css selector", css)

    def all(self, css: str):
        return self.driver.find_elements("css selector", css)

    def text(self, css: str = "main") -> str:
        """Of an element that the page may be replacing just now."""
        script = "return document.querySelector(arguments[0])?.textContent ?? ''"
        return str(self.driver.execute_script(script, css))

    def click(self, css: str) -> None:
        element = self.find(css)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def wait(self, met, what: str, seconds: float = 240):
        """Until it is true; a slow machine has time."""
        from selenium.common.exceptions import StaleElementReferenceException

        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            try:
                if found := met():
                    return found
            except StaleElementReferenceException:
                pass
            time.sleep(0.1)
        raise AssertionError(f"not within {seconds} s: {what}\n{self.driver.current_url}\n{self.text()[:2000]}")

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def tab_to(self, css: str, most: int = 80) -> None:
        """Presses Tab until this element has the focus."""
        for _ in range(most):
            self.press("\ue004")
            if self.driver.execute_script("return document.activeElement.matches(arguments[0])", css):
                return
        raise AssertionError(f"Tab does not reach {css}")

    def carry(self, css: str, *paths: Path) -> None:
        """Files and folders dragged from outside the browser, and dropped on an element."""
        element = self.find(css)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        box = self.driver.execute_script("return arguments[0].getBoundingClientRect().toJSON()", element)
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 8}
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for step in ("dragEnter", "dragOver", "drop"):
            self.driver.execute_cdp_cmd("Input.dispatchDragEvent", {"type": step, **place, "data": data})

    def download(self, css: str, folder: Path) -> Path:
        """What a click on this link brings, as a file."""
        folder.mkdir(parents=True, exist_ok=True)
        allowed = {"behavior": "allow", "downloadPath": str(folder)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", allowed)
        self.click(css)
        return self.wait(lambda: next((p for p in folder.iterdir() if p.suffix != ".crdownload"), None), "the file", 60)

    def drop(self, css: str, name: str, content: bytes, kind: str = "image/png", zeros: int = 0) -> None:
        """A file dropped on an element; its content is followed by so many zeros."""
        import base64

        script = """
            const bytes = Uint8Array.from(atob(arguments[2]), c => c.charCodeAt(0));
            const data = new DataTransfer();
            data.items.add(new File([bytes, new Uint8Array(arguments[4])], arguments[1], {type: arguments[3]}));
            const event = new DragEvent('drop', {dataTransfer: data, bubbles: true});
            document.querySelector(arguments[0]).dispatchEvent(event);
        """
        self.driver.execute_script(script, css, name, base64.b64encode(content).decode(), kind, zeros)

    def size(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scheme(self, name: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def forget_logs(self) -> None:
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)

    def complaints(self, *expected: str) -> list[str]:
        """Broken policies, console messages and requests to other places, but for console messages with these words."""
        script = "const s = sessionStorage.broken ?? '[]'; delete sessionStorage.broken; return JSON.parse(s)"
        found = [f"policy: {what}" for what in self.driver.execute_script(script)]
        messages = [entry["message"] for entry in self.driver.get_log("browser")]
        found += [text for text in messages if not any(words in text for words in expected)]
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return found + [url[:100] for url in asked if not url.startswith((self.base, "data:"))]

    def axe(self) -> list[str]:
        """Violations that axe-core calls serious or critical."""
        self.driver.execute_script(gzip.decompress(AXE.read_bytes()).decode())
        script = "axe.run().then(r => arguments[0](r.violations.map(v => [v.impact, v.id, v.nodes[0].html])))"
        found = self.driver.execute_async_script(script)
        return [f"{impact}: {name}: {html}" for impact, name, html in found if impact in ("serious", "critical")]
