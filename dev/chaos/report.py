"""The report of a run for people: tables, and a picture of rows and status over time; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from chaos.seen import Finding, Span, Told

_HEAD: Final = (
    "#",
    "fault",
    "held",
    "first new row after",
    "longest time without a row",
    "not `Ready` after",
    "as",
    "`Ready` after the first row",
    "`Ready` without a row for",
    "rows",
    "count",
)
_HEAD_OF_FAULTS: Final = (
    "fault",
    "times",
    "held",
    "first new row after",
    "not `Ready` after",
    "as",
    "`Ready` after the first row",
    "`Ready` without a row for",
)
_WIDTH: Final = 1600
_LEFT: Final = 60
_ROWS: Final = (50, 250)
_READY: Final = (270, 300)
_AXIS: Final = 320
_COLOURS: Final = {"ready": "#4c9f70", "not ready": "#d1495b", "not told": "#b0b0b0"}


@dataclass(frozen=True)
class Case:
    span: Span
    finding: Finding
    rows: int
    """All that were fed until then."""
    count: str
    """`exact`, or what was wrong."""


def table(cases: Sequence[Case]) -> str:
    lines = [_HEAD, ("---",) * len(_HEAD)]
    for number, case in enumerate(cases, 1):
        span, found = case.span, case.finding
        lines.append(
            (
                str(number),
                span.fault,
                _s(span.over - span.began),
                _s(found.first_row_s),
                _s(found.gap_s),
                _s(found.told_s),
                found.told or "-",
                _s(found.ready_s),
                _s(found.untold_s),
                f"{case.rows:,}",
                "; ".join([case.count, *found.problems]).replace("|", "/").replace("\n", " "),
            )
        )
    return _lines(lines)


def by_fault(cases: Sequence[Case]) -> str:
    """A line for each fault, in the order of their first times: what docs/on-a-node.md shows of a long run."""
    lines = [_HEAD_OF_FAULTS, ("---",) * len(_HEAD_OF_FAULTS)]
    for fault in dict.fromkeys(case.span.fault for case in cases):
        spans = [case.span for case in cases if case.span.fault == fault]
        found = [case.finding for case in cases if case.span.fault == fault]
        lines.append(
            (
                fault,
                str(len(found)),
                _range(span.over - span.began for span in spans),
                _range(each.first_row_s for each in found),
                _range(each.told_s for each in found),
                ", ".join(f"`{each}`" for each in sorted({each.told for each in found if each.told})) or "-",
                _range(each.ready_s for each in found),
                _range(each.untold_s for each in found),
            )
        )
    return _lines(lines)


def _lines(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def picture(cases: Sequence[Case], arrivals: Sequence[tuple[float, int]], told: Sequence[Told], end: float) -> str:
    """An SVG: above the rows of each second, below whether it was Ready; what was broken is shaded and numbered."""
    scale = (_WIDTH - 2 * _LEFT) / max(end, 1.0)

    def x(at: float) -> float:
        return round(_LEFT + at * scale, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_AXIS + 70}">',
        "<style>text { font: 12px sans-serif; }</style>",
        f'<rect width="{_WIDTH}" height="{_AXIS + 70}" fill="white"/>',
    ]
    for number, case in enumerate(cases, 1):
        left, width = x(case.span.began), max(2.0, round((case.span.over - case.span.began) * scale, 1))
        title = f"<title>{number}: {escape(case.span.fault)}</title>"
        height = _READY[1] - _ROWS[0]
        parts.append(f'<rect x="{left}" y="{_ROWS[0]}" width="{width}" height="{height}" fill="#f2c14e">{title}</rect>')
        parts.append(f'<text x="{left}" y="{_ROWS[0] - 8 - 14 * (number % 2)}">{number}</text>')
    parts.extend(_bars(arrivals, scale))
    # The last one holds until the end.
    for each, until in zip(told, [*(after.at for after in told[1:]), end], strict=False):
        colour = _COLOURS["ready" if each.ready else "not ready" if each.not_ready else "not told"]
        width = max(0.5, round((until - each.at) * scale, 1))
        parts.append(
            f'<rect x="{x(each.at)}" y="{_READY[0]}" width="{width}" height="{_READY[1] - _READY[0]}" fill="{colour}">'
            f"<title>{escape(each.text)}, {each.at:.0f} s</title></rect>"
        )
    minutes = range(int(end // 60) + 1)
    parts.extend(f'<text x="{x(60.0 * each)}" y="{_AXIS}" fill="#555">{each} min</text>' for each in minutes)
    parts.append(f'<text x="5" y="{_ROWS[1]}">rows/s</text><text x="5" y="{_READY[1] - 10}">Ready</text>')
    legend = [(text, colour) for text, colour in (*_COLOURS.items(), ("something is broken", "#f2c14e"))]
    for place, (text, colour) in enumerate(legend):
        left = _LEFT + 180 * place
        parts.append(f'<rect x="{left}" y="{_AXIS + 25}" width="14" height="14" fill="{colour}"/>')
        parts.append(f'<text x="{left + 20}" y="{_AXIS + 37}">{text}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _bars(arrivals: Sequence[tuple[float, int]], scale: float) -> list[str]:
    seconds = Counter[int]()
    for at, rows in arrivals:
        seconds[int(at)] += rows
    # What was left comes at once: the highest of a hundred seconds would leave the others flat.
    top = sorted(seconds.values())[int(0.98 * (len(seconds) - 1))] if seconds else 1
    height = _ROWS[1] - _ROWS[0]
    bars = []
    for second, rows in sorted(seconds.items()):
        tall = round(height * min(1.0, rows / top), 1)
        left, width = round(_LEFT + second * scale, 1), round(max(scale, 0.5), 1)
        bars.append(f'<rect x="{left}" y="{_ROWS[1] - tall}" width="{width}" height="{tall}" fill="#2e86ab"/>')
    return bars


def _range(all_seconds: Iterable[float | None]) -> str:
    """Of those that are known."""
    known = [round(each) for each in all_seconds if each is not None]
    if not known:
        return "-"
    least, most = min(known), max(known)
    return f"{most} s" if least == most else f"{least} to {most} s"


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f} s"
