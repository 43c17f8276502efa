"""Draws the losses of a training log as SVG: `python curve.py run/log.jsonl curve.svg`.

One polyline a loss over the minutes trained, nats on a logarithmic axis. No plotting library is
needed for three lines.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

WIDTH, HEIGHT, EDGE = 720, 400, 48
LOWEST, HIGHEST = 0.02, 8.0  # nats
_COLOURS = {"draft": "#0b6e99", "dense": "#8a8a8a", "text": "#b5481d"}
_NAMES = {"draft": "draft head, nats a byte", "dense": "columns, nats a column"}


def height_of(loss: float) -> float:
    """The y of a loss on the picture, in pixels."""
    place = math.log(max(LOWEST, min(HIGHEST, loss)) / LOWEST) / math.log(HIGHEST / LOWEST)
    return HEIGHT - EDGE - place * (HEIGHT - 2 * EDGE)


def draw(rows: list[dict[str, float]]) -> str:
    """The SVG text for the records of a log."""
    longest = max(row["seconds"] for row in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for loss in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5):
        y = height_of(loss)
        parts.append(f'<path d="M{EDGE} {y:.1f}H{WIDTH - EDGE}" stroke="#dddddd"/>')
        parts.append(f'<text x="{EDGE - 6}" y="{y + 4:.1f}" text-anchor="end">{loss}</text>')
    for minute in range(0, int(longest / 60) + 1, 10):
        x = EDGE + minute * 60 / longest * (WIDTH - 2 * EDGE)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - EDGE + 18}">{minute}</text>')
    parts.append(f'<text x="{WIDTH - EDGE}" y="{HEIGHT - 10}" text-anchor="end">minutes</text>')
    for place, (name, colour) in enumerate(_COLOURS.items()):
        points = " ".join(
            f"{EDGE + row['seconds'] / longest * (WIDTH - 2 * EDGE):.1f},{height_of(row[name]):.1f}"
            for row in rows
            if name in row
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        label = _NAMES.get(name, "decoder, nats a byte")
        parts.append(
            f'<text x="{WIDTH - 220}" y="{20 + 16 * place}" fill="{colour}">{label}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Entry point."""
    log, picture = map(Path, sys.argv[1:3])
    rows = [json.loads(row) for row in log.read_text(encoding="utf-8").splitlines()]
    picture.write_text(draw(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
