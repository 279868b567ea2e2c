"""The report in a real browser: light, dark, on a phone. Skipped where there is no chromium."""

import html
import json
import re
import shutil
import subprocess

import pytest
from PIL import Image

from spectralgrad_lab import Result

from .test_report import RUNS, done, failed, written

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; `.ci/run` installs Debian's where it can"),
    pytest.mark.xdist_group("browser"),
]

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
DARK = "--blink-settings=preferredColorScheme=0"
VIEWS = {"light": (1100, []), "dark": (1100, [DARK]), "phone": (390, []), "small-phone": (360, [DARK])}

# What a test asks the page: its width, what sticks out of it, text too small to read, and what it loaded.
PROBE = """
<script>
addEventListener("load", () => {
  const wide = [...document.querySelectorAll("main *")].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width && (box.right > innerWidth + 1 || box.left < -1);
  });
  const small = [...document.querySelectorAll("main text, main td, main p, main dd, main .text")].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width && box.height < 9;
  });
  parent.document.title = JSON.stringify({
    width: innerWidth, content: document.documentElement.scrollWidth, wide: wide.map(e => e.outerHTML.slice(0, 120)),
    small: small.map(e => e.outerHTML.slice(0, 120)), loaded: performance.getEntriesByType("resource").length,
    height: document.documentElement.scrollHeight, dark: matchMedia("(prefers-color-scheme: dark)").matches,
    covered: overlaps(),
  });
});
function overlaps() {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    const boxes = [...svg.querySelectorAll("text")].map(e => e.getBoundingClientRect());
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => {
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (x > 1 && y > 4) found.push(svg.getAttribute("aria-label"));
    }));
  }
  return found;
}
</script>
"""
MANY = [
    *(failed("svd", seed, group_size=size) for size in (8, 16, 64) for seed in range(3)),
    *(done("svd-taylor", seed, 30.0 + seed, group_size=size) for size in (8, 16, 64) for seed in range(3)),
    *(done("newton-schulz", seed, 30.0 + seed, group_size=size) for size in (8, 16, 64) for seed in range(3)),
]


def chromium(page, folder, width, *flags):
    """Open the page in a frame of that width, since a window has a least one; returns what chromium says."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = f'<iframe style="border: 0; width: {width}px; height: 1600px" srcdoc="{html.escape(page)}"></iframe>'
    outer = folder / "outer.html"
    outer.write_text(f'<!doctype html><meta charset="utf-8"><body style="margin: 0">{frame}', "utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "--window-size=1200,1700", *flags, f"file://{outer}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


SHORT = [Result(r.config.replaced(epochs=1), r.status, r.epochs[:1], r.failure) for r in RUNS]


@pytest.fixture(scope="module", params=["default", "many-sizes", "one-epoch"])
def page(request, tmp_path_factory):
    results = {"default": RUNS, "many-sizes": MANY, "one-epoch": SHORT}[request.param]
    return written(tmp_path_factory.mktemp(request.param), results).path.read_text("utf-8")


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_sticks_out_covers_or_is_too_small(page, view, tmp_path):
    width, flags = VIEWS[view]
    dom = chromium(page.replace("</main>", f"</main>{PROBE}"), tmp_path / "profile", width, *flags, "--dump-dom")
    seen = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1]))
    assert seen["width"] == width
    assert seen["content"] <= width
    assert seen["wide"] == []
    assert seen["small"] == []
    assert seen["covered"] == []
    assert seen["loaded"] == 0
    assert seen["dark"] == (DARK in flags)
    assert seen["height"] > 2000


@pytest.mark.parametrize("view", VIEWS)
def test_it_is_not_blank_and_has_the_right_ground(page, view, tmp_path):
    width, flags = VIEWS[view]
    image = tmp_path / "image.png"
    chromium(page, tmp_path / "profile", width, *flags, f"--screenshot={image}")
    with Image.open(image) as whole:
        image = whole.crop((0, 0, width, 1600))
        grey = image.convert("L")
        rgb = image.convert("RGB").getcolors(image.width * image.height)
    ground = grey.getpixel((3, 3))
    assert (ground < 60) == (DARK in flags)
    assert (ground > 220) == (DARK not in flags)
    levels = grey.histogram()
    ink = sum(count for level, count in enumerate(levels) if abs(level - ground) > 90) / sum(levels)
    assert 0.01 < ink < 0.5  # text and bars, neither blank nor a block
    assert len(rgb) > 50
