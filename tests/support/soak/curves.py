"""What a curve gains in the second half of a run, with the error of that figure, and a picture of all curves."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BLOCKS = 16
"""A value that rises and falls again depends on the one before: so the means of blocks are compared."""

ERRORS, SHARE = 4.0, 0.02
"""A curve rises if it gains, less four standard errors, more than this share of its mean."""

WIDTH, HEIGHT, COLUMNS = 300, 110, 4
MARGIN = 34


class Gain(NamedTuple):
    """What a curve gains in a time, the standard error, and the mean of the curve."""

    gain: float
    error: float
    mean: float

    @property
    def rises(self) -> bool:
        """Whether it gains more than its error and a share of the mean explain."""
        return self.gain - ERRORS * self.error > SHARE * self.mean

    def __str__(self) -> str:
        mean = self.mean or 1
        return f"{self.gain / mean:+.1%} ± {self.error / mean:.1%} of {self.mean:,.4g}"


def gain(points: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> Gain:
    """Return what the line that fits best gains between two times. A point is a time in seconds and a value."""
    blocks: list[list[float]] = [[] for _ in range(BLOCKS)]
    for at_s, value in points:
        if begin_s <= at_s < end_s:
            blocks[int((at_s - begin_s) / (end_s - begin_s) * BLOCKS)].append(value)
    times = [number / BLOCKS for number, block in enumerate(blocks) if block]
    means = [float(np.mean(block)) for block in blocks if block]
    if len(means) < 4:
        return Gain(0.0, math.inf, 0.0)
    (slope, _), covariance = np.polyfit(times, means, 1, cov=True)
    return Gain(float(slope), float(covariance[0][0] ** 0.5), float(np.mean(means)))


def picture(curves: Mapping[str, Sequence[tuple[float, float]]], gains: Mapping[str, Gain], length_s: float) -> str:
    """Return an SVG with a small diagram for each curve. The half that is judged has another background."""
    panels = []
    for number, (title, points) in enumerate(curves.items()):
        x, y = number % COLUMNS * (WIDTH + MARGIN), number // COLUMNS * (HEIGHT + 2 * MARGIN)
        top = max(value for _, value in points) or 1
        places = (f"{at_s / length_s * WIDTH:.1f},{HEIGHT * (1 - value / top):.1f}" for at_s, value in points)
        panels.append(
            f'<g transform="translate({x + MARGIN},{y + MARGIN})">'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#f2f2f2"/>'
            f'<rect x="{WIDTH / 2}" width="{WIDTH / 2}" height="{HEIGHT}" fill="#e2e8f0"/><text y="-6">{title}</text>'
            f'<polyline points="{" ".join(places)}" fill="none" stroke="{"#c00" if gains[title].rises else "#05a"}"/>'
            f'<text class="axis" x="3" y="10">{top:,.4g}</text><text class="axis" x="3" y="{HEIGHT - 3}">0</text>'
            f'<text class="axis" y="{HEIGHT + 14}">{length_s / 3600:.2g} h; second half: {gains[title]}</text></g>'
        )
    width, height = COLUMNS * (WIDTH + MARGIN) + MARGIN, math.ceil(len(curves) / COLUMNS) * (HEIGHT + 2 * MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"><rect width="100%" height="100%" '
        'fill="white"/><style>text { font: bold 12px sans-serif } .axis { font: 10px sans-serif; fill: #555 }</style>'
        f"{''.join(panels)}</svg>"
    )


def draw(svg: Path) -> Path:
    """Draw a picture as PNG. Return its path, or that of the SVG if there is no Chromium."""
    chromium, png = shutil.which("chromium"), svg.with_suffix(".png")
    if chromium is None:
        return svg
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(svg.as_uri())
        page.locator("svg").screenshot(path=png)
        browser.close()
    return png
