"""Draws the dashboard's panels from what a Prometheus recorded of a proxy under traffic.
`python -m tests.kubernetes.picture` writes docs/dashboard.png; the drawing itself is drawing.py, with matplotlib."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.kubernetes.tools import HERE, ROOT, ran
from tests.kubernetes.watched import Watched, filled_in, panels, watched

SECONDS, SHOWN = 160, 90


def recorded(found: Watched, began: float, ended: float) -> list[dict[str, Any]]:
    """Every panel with its series."""
    return [
        {
            **{key: panel[key] for key in ("title", "type", "gridPos")},
            "unit": panel["fieldConfig"]["defaults"]["unit"],
            "series": [
                {"legend": target["legendFormat"], **series}
                for target in panel["targets"]
                for series in found.query(
                    "query_range", query=filled_in(target["expr"]), start=str(began), end=str(ended), step="1"
                )
            ],
        }
        for panel in panels()
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, watched(Path(folder)) as found:
        began = time.time()
        while time.time() < began + SECONDS / 2:
            found.traffic()
        found.change_policies()
        while time.time() < began + SECONDS:
            found.traffic()
        drawn = json.dumps(recorded(found, time.time() - SHOWN, time.time()))
    ran("python", HERE / "drawing.py", ROOT / "docs" / "dashboard.png", given=drawn)


if __name__ == "__main__":
    main()
