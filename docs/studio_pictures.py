"""Makes the pictures of docs/studio.md and the README: every page of `unsee studio`, light and dark, wide and phone.

    python docs/studio_pictures.py [--runs FOLDER] [--whole FOLDER]

Makes a few runs on the embedded data (about ten minutes), opens the page in Chromium and writes
`docs/studio-NAME.webp` (wide, light) and `docs/studio-NAME-looks.webp` (wide and dark; phone, light and dark).
--runs keeps the runs for the next time; --whole writes every page in full as PNG, to look at.
"""

from __future__ import annotations

import argparse
import base64
import io
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from tests.studio.browsing import Served, Visitor, open_browser  # noqa: E402
from unsee.data.demo import load_demo  # noqa: E402

SIZES = {"wide": (1280, 860), "phone": (390, 860)}
FORGET = "airplane,automobile,bird,cat"
SHORTER = """
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(arguments[0], arguments[1]);
"""
BEST, OTHER, STOPPED, BUSY = "four-classes", "four-classes-lcs", "ship", "frog-and-horse"


def unsee(*words: str | Path) -> None:
    """Runs the command."""
    subprocess.run([sys.executable, "-m", "unsee", *map(str, words)], check=True)


def make_runs(root: Path, cache: Path) -> None:
    """Runs to show: two finished ones, one of them audited, and one that was stopped."""
    where = f"--cache-dir={cache}"
    if not (root / BEST / "result.json").is_file():
        unsee("forget", "demo", f"--forget={FORGET}", where, f"--out={root / BEST}")
        unsee("audit", root / BEST, where)
        unsee("pick", root / BEST, "--acc-mem=0.9")
    if not (root / OTHER / "result.json").is_file():
        words = ("--method=lcs", "--image-queries=128000", where, f"--out={root / OTHER}")
        unsee("forget", "demo", f"--forget={FORGET}", *words)
    if not (root / STOPPED).is_dir():
        words = ["forget", "demo", "--forget=ship", where, f"--out={root / STOPPED}"]
        child = subprocess.Popen([sys.executable, "-m", "unsee", *words])
        while child.poll() is None and generations(root / STOPPED) < 40:
            time.sleep(0.2)
        child.terminate()
        child.wait()


def generations(run: Path) -> int:
    """How many the run has done so far."""
    journal = run / "journal.jsonl"
    return len(journal.read_text().splitlines()) if journal.is_file() else 0


class Photographer:
    """Takes pictures of the page that a visitor sees."""

    def __init__(self, visitor: Visitor, place: Path, whole: Path | None) -> None:
        self._visitor, self._place, self._whole = visitor, place, whole
        self.taken: dict[tuple[str, str, str], Image.Image] = {}

    def take(self, name: str) -> None:
        """All four looks of the page as it is, but for the folder, which is called /home/me."""
        self._visitor.driver.execute_script(SHORTER, str(self._place), "/home/me")
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                self._visitor.scheme(scheme)
                found = self._picture(width)
                if self._whole is not None:
                    found.save(self._whole / f"{name}-{size}-{scheme}.png")
                high = min(found.height, height if size == "phone" else 1150)  # a crop beyond the page would be black
                self.taken[name, size, scheme] = found.crop((0, 0, width, high))

    def _picture(self, width: int) -> Image.Image:
        visitor = self._visitor
        visitor.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        visitor.size(width, 900)
        high = visitor.driver.execute_script("return document.documentElement.scrollHeight")
        visitor.size(width, min(high, 9000))  # so that lazily loaded images come
        script = "const i = [...document.images]; return i.every(x => x.complete) && (scrollTo(0, 0), true)"
        visitor.wait(lambda: visitor.driver.execute_script(script), "images", 30)
        time.sleep(0.4)
        content = visitor.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        return Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB")

    def write(self, folder: Path) -> None:
        """The pictures as files, small enough for a repository."""
        for name in dict.fromkeys(key[0] for key in self.taken):
            self.taken[name, "wide", "light"].save(folder / f"studio-{name}.webp", quality=60, method=6)
            parts = [self.taken[name, *look] for look in (("wide", "dark"), ("phone", "light"), ("phone", "dark"))]
            parts = [part.crop((0, 0, part.width, SIZES["wide"][1])) for part in parts]
            sheet = Image.new("RGB", (sum(part.width for part in parts) + 40, parts[0].height), "#8a919c")
            left = 0
            for part in parts:
                sheet.paste(part, (left, 0))
                left += part.width + 20
            sheet = sheet.resize((sheet.width * 3 // 5, sheet.height * 3 // 5), Image.Resampling.LANCZOS)
            sheet.save(folder / f"studio-{name}-looks.webp", quality=60, method=6)


def take_all(visitor: Visitor, camera: Photographer, root: Path, cache: Path) -> None:
    """Every page once, as a visitor meets them."""
    shutil.rmtree(root / BUSY, ignore_errors=True)
    visitor.open("/")
    visitor.wait(lambda: visitor.all("#rows tr"), "the list")
    words = ["forget", "demo", "--forget=frog,horse", f"--cache-dir={cache}", f"--out={root / BUSY}", "--overwrite"]
    child = subprocess.Popen([sys.executable, "-m", "unsee", *words], stderr=subprocess.DEVNULL)
    try:
        visitor.wait(lambda: (root / BUSY / "journal.jsonl").is_file(), "the run's first generation")
        visitor.open(f"/run/{BUSY}")
        visitor.wait(lambda: visitor.all("#answers li") and len(visitor.all("polyline")) == 2, "its curves")
        time.sleep(15)
        camera.take("live")
        visitor.open("/")
        camera.take("runs")
    finally:
        child.terminate()
        child.wait()
    visitor.open("/new")
    visitor.wait(lambda: "recognises" in visitor.text(".cards"), "what the model knows")
    for name in FORGET.split(","):
        visitor.click(f'input[value="{name}"]')
    visitor.wait(lambda: "Image queries" in visitor.text("#forecast"), "the forecast")
    camera.take("new")
    visitor.open(f"/run/{BEST}")
    visitor.wait(lambda: visitor.all("#trade-shots li"), "answers of a trade-off")
    camera.take("result")
    visitor.open(f"/compare?run={BEST}&run={OTHER}")
    camera.take("compare")
    visitor.open(f"/try?run={BEST}")
    data, image = load_demo().test, io.BytesIO()
    cat = np.flatnonzero(data.labels == data.class_names.index("cat"))[8]
    data.read(int(cat)).resize((224, 224)).save(image, "PNG")
    visitor.drop("#drop", "cat.png", image.getvalue())
    visitor.wait(lambda: len(visitor.all("#answer section")) == 3, "an answer")
    camera.take("try")


def main() -> None:
    """Makes the runs and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--whole", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = given.runs or Path(temporary)
        cache, root = place / "cache", place / "runs"
        if given.whole is not None:
            given.whole.mkdir(parents=True, exist_ok=True)
        driver = open_browser()
        served, nothing = Served(root, cache), Served(place / "nothing", cache)
        camera = Photographer(Visitor(driver, served.base), place.resolve(), given.whole)
        try:
            visitor = Visitor(driver, nothing.base)
            visitor.open(nothing.start())
            camera.take("empty")
            make_runs(root, cache)
            visitor = Visitor(driver, served.base)
            visitor.open(served.start())
            take_all(visitor, camera, root, cache)
        finally:
            driver.quit()
            served.end()
            nothing.end()
        camera.write(DOCS)


if __name__ == "__main__":
    main()
