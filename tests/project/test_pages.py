"""The site in a real browser: every page, at the width of a desktop and of a phone, light and dark.

Needs Chromium, playwright, and pages that are built: those in the folder that GBDNN_PAGES names.
"""

import os
import shutil
from pathlib import Path

import pytest

FOLDER = os.environ.get("GBDNN_PAGES")
ROOT = Path(FOLDER).resolve() if FOLDER else None
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
NEEDED = "no pages (GBDNN_PAGES), or no Chromium"
pytestmark = pytest.mark.skipif(not (ROOT and BROWSER), reason=NEEDED)

# Listings of the code are all alike; of the pages of single objects one in sixteen is opened.
PAGES = [
    page
    for n, page in enumerate(sorted(ROOT.rglob("*.html")) if ROOT else [])
    if not {"_modules", "_static"} & set(page.parts) and ("made" not in page.parts or n % 16 == 0)
]
SIZES = [(1280, 900), (390, 844)]  # of a desktop and a phone
BROKEN = """() => [...document.images]
    .filter(each => each.complete && each.naturalWidth === 0).map(each => each.src)"""
BEYOND = """() => {
    const width = document.documentElement.clientWidth;
    const held = each => {
        for (let at = each.parentElement; at; at = at.parentElement) {
            if (at.matches('.bd-article')) return false;  // in a box that scrolls: the whole text
            const style = getComputedStyle(at);
            if (/auto|scroll|hidden/.test(style.overflowX)) return true;
        }
        return false;
    };
    const fits = document.documentElement.scrollWidth <= width;
    return [...document.querySelectorAll(fits ? '.bd-article :not(.headerlink)' : 'body *')]
        .filter(each => each.getBoundingClientRect().right > width + 1 && !held(each))
        .slice(0, 5).map(each => each.outerHTML.slice(0, 120));
}"""


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


class Tab:
    """A page of the browser, and what is wrong with the files that it opens."""

    def __init__(self, browser):
        self._page = page = browser.new_page()
        self._found = []
        page.on("console", lambda told: told.type == "error" and self._tell("console", told.text))
        page.on("pageerror", lambda error: self._tell("script", error))
        page.on("requestfailed", self._failed)
        page.on("request", lambda it: it.url.startswith("http") and self._tell("network", it.url))

    def _tell(self, *words):
        self._found.append(": ".join(map(str, words)))

    def _failed(self, request):
        # A request that goes on behind the page's end (the favicon's) ends with the next page.
        if request.failure != "net::ERR_ABORTED":
            self._tell("not there", request.url)

    def faults(self, file):
        self._found.clear()
        self._page.goto(file.as_uri())
        for width, height in SIZES:
            self._page.set_viewport_size({"width": width, "height": height})
            beyond = self._page.evaluate(BEYOND)
            self._found += [f"beyond the right edge at {width}: {each}" for each in beyond]
        for scheme in ("light", "dark"):
            self._page.emulate_media(color_scheme=scheme)
            broken = self._page.evaluate(BROKEN)
            self._found += [f"picture, {scheme}: {each}" for each in broken]
        return list(self._found)


@pytest.mark.slow
def test_every_page(browser):
    assert len(PAGES) > 20
    tab = Tab(browser)
    found = {page.relative_to(ROOT): told for page in PAGES if (told := tab.faults(page))}
    assert not found, "\n".join(f"{page}: {told}" for page, told in found.items())


def test_a_bad_page_is_seen(browser, tmp_path):
    bad, tab = tmp_path / "bad.html", Tab(browser)
    script = "<script>console.error('no'); f()</script>"
    bad.write_text(f"<img src=none.png><p style='width:2000px'>x</p>{script}")
    told = " ".join(tab.faults(bad))
    assert all(each in told for each in ("not there", "picture", "right edge", "console", "script"))
    good = tmp_path / "good.html"
    good.write_text("<!doctype html><p>x</p>")
    assert tab.faults(good) == []
