"""Small line charts as SVG: a panel a figure, of one size, that a page lays out side by side or below each other."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

Points = tuple[tuple[float, float], ...]
WIDTH, HEIGHT = 340, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 332, 10, 164
"""The rectangle of the axes, in units of the drawing."""
MOST = 300
"""Number of points of a line; of more, neighbours are drawn together, by their mean."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a panel: ``look`` is a class of the page's style (``raw``, ``smooth``, ``dots``)."""

    name: str
    points: Points
    look: str = "raw"


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart with its title and a sentence on what it shows; ``percent``: values are shares."""

    title: str
    says: str
    lines: tuple[Line, ...]
    percent: bool = False

    @property
    def data(self) -> tuple[Points, ...]:
        """Return what is drawn, to four decimals: two panels of the same data are one, whatever they are called."""
        return tuple(tuple((x, round(y, 4)) for x, y in line.points) for line in self.lines)

    @property
    def ends(self) -> str:
        """Return the first and last value of the first line in words.

        >>> Panel("KL", "", (Line("KL", ((0, 0.0), (1, 0.25))),)).ends
        '0 to 0.25'
        """
        points = self.lines[0].points
        return f"{self.number(points[0][1])} to {self.number(points[-1][1])}"

    def number(self, value: float) -> str:
        """Return a value as the axis shows it.

        >>> Panel("", "", (), percent=True).number(0.25), Panel("", "", ()).number(12345.0)
        ('25 %', '1.23e+04')
        """
        return f"{100 * value:.3g} %" if self.percent else f"{value:.3g}"


def draw(panel: Panel, last: float, boundaries: Sequence[float] = ()) -> Markup:
    """Return a panel as SVG in the colours of the page.

    Args:
        panel: what to draw; without points only the axes are drawn.
        last: where the x axis ends; it begins at 0.
        boundaries: places on the x axis where another phase begins.
    """
    points = [point for line in panel.lines for point in line.points]
    marks = ticks(min([y for _, y in points], default=0.0), max([y for _, y in points], default=1.0))

    def across(x: float) -> float:
        return LEFT + x / max(last, 1.0) * (RIGHT - LEFT)

    def down(y: float) -> float:
        return BOTTOM - (y - marks[0]) / (marks[-1] - marks[0]) * (BOTTOM - TOP)

    parts = list(_axes(panel, [(y, down(y)) for y in marks], [(x, across(x)) for x in _whole_ticks(last)]))
    parts += [
        f'<line class="phase" x1="{across(x):.1f}" x2="{across(x):.1f}" y1="{TOP}" y2="{BOTTOM}"/>'
        for x in boundaries
        if 0 < x < last
    ]
    for line in panel.lines:
        places = [(across(x), down(y)) for x, y in thin_points(line.points)]
        if line.look == "dots" or len(places) == 1:
            parts += [f'<circle class="{line.look}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places]
        if len(places) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline class="{line.look}" points="{path}"/>')
    caption = escape(f"{panel.title} by step: {panel.ends if points else 'no value'}")
    inside = "".join(parts)
    return Markup(f'<svg role="img" aria-label="{caption}" viewBox="0 0 {WIDTH} {HEIGHT}">{inside}</svg>')


def _axes(panel: Panel, marks: Sequence[tuple[float, float]], steps: Sequence[tuple[float, float]]) -> Iterator[str]:
    """Yield the lines and numbers of both axes, each number with its place."""
    for mark, y in marks:
        yield f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{panel.number(mark)}</text>'
    for step, x in steps:
        yield f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{step:,.0f}</text>'


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return evenly spaced round numbers, from at or below ``low`` to at or above ``high``; 0 is one where it is near.

    >>> ticks(0.03, 0.87), ticks(2.0, 2.0)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 0.5, 1.0, 1.5, 2.0])
    """
    low, high = (0.0, high) if (0 <= low <= max(high, 0.0) and low < 0.6 * high) or low == high > 0 else (low, high)
    low, high = (low, 0.0) if low == high < 0 else (low, high)
    span = (high - low) or 1.0
    for exponent in (math.floor(math.log10(span)) - 1, math.floor(math.log10(span))):
        for base in (1.0, 2.0, 2.5, 5.0):
            step = base * 10.0**exponent
            first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
            if last - first < most:
                return [round(n * step, 12) for n in range(first, max(last, first + 1) + 1)]
    return [low, low + span]


def _whole_ticks(last: float) -> list[float]:
    """Return a few whole numbers from 0 to the last step."""
    return [mark for mark in ticks(0.0, max(last, 1.0)) if mark <= last and mark == int(mark)]


def thin_points(points: Points) -> Points:
    """Return at most :data:`MOST` points: means of as many neighbours as needed.

    >>> len(thin_points(tuple((float(n), 1.0) for n in range(1000))))
    250
    """
    size = -(-len(points) // MOST)
    parts = [points[first : first + size] for first in range(0, len(points), size or 1)]
    return tuple((sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts)
