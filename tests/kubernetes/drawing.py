"""Draws panels, a JSON list on standard input, into the PNG file that is given. Runs where matplotlib is."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

COLUMNS, INCHES, ROW_INCHES = 24, 16.0, 0.34
MILLI, PERCENT, RATE = (1000.0, " ms"), (100.0, " %"), (1.0, "/s")
UNITS = {"s": MILLI, "percentunit": PERCENT, "reqps": RATE, "ops": RATE, "none": (1.0, "")}


def legend(series: dict[str, Any]) -> str:
    metric: dict[str, str] = series["metric"]
    return re.sub(r"\{\{(\w+)\}\}", lambda found: metric.get(found[1], ""), series["legend"])


def points(series: dict[str, Any], factor: float) -> tuple[list[float], list[float]]:
    pairs = [(float(at), float(value) * factor) for at, value in series["values"]]
    known = [(at, value) for at, value in pairs if not math.isnan(value)]
    return [at - pairs[0][0] for at, _ in known], [value for _, value in known]


def draw(axes: Any, panel: dict[str, Any]) -> None:
    factor, unit = UNITS[panel["unit"]]
    axes.set_title(panel["title"] + (f" ({unit.strip()})" if unit.strip() else ""), fontsize=8, loc="left")
    axes.tick_params(labelsize=6)
    if panel["type"] == "timeseries":
        for series in panel["series"]:
            axes.plot(*points(series, factor), label=legend(series)[:44], linewidth=1)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
        if panel["series"]:
            axes.legend(fontsize=5, loc="upper left", ncols=2, frameon=False)
        return
    axes.set_axis_off()
    lines = []
    for series in panel["series"]:
        _, values = points(series, factor)
        name = legend(series) or "  ".join(value[:16] for _, value in sorted(series["metric"].items(), reverse=True))
        lines.append(f"{values[-1] if values else 0:.3g}{unit}  {name[:40]}")
    size = 15 if panel["type"] == "stat" else 7
    axes.text(0.02, 0.5, "\n".join(lines), fontsize=size, va="center", transform=axes.transAxes)


def main() -> None:
    import matplotlib  # type: ignore[import-not-found,unused-ignore]  # in the tools' own environment alone

    matplotlib.use("agg")
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    panels: list[dict[str, Any]] = json.load(sys.stdin)
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = pyplot.figure(figsize=(INCHES, rows * ROW_INCHES), dpi=80)
    for panel in panels:
        at = panel["gridPos"]
        left, width = at["x"] / COLUMNS + 0.02, at["w"] / COLUMNS - 0.035
        bottom = 1 - (at["y"] + at["h"]) / rows + 0.012
        draw(figure.add_axes((left, bottom, width, at["h"] / rows - 0.03)), panel)
    figure.savefig(sys.argv[1])


if __name__ == "__main__":
    main()
