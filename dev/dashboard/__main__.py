"""`make dashboard`: writes the chart's Grafana dashboard anew."""

from __future__ import annotations

from dashboard.board import render
from deployed.chart import CHART

(CHART / "files" / "dashboard.json").write_text(render())
