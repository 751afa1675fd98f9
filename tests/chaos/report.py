"""A round as a table for people."""

from collections import Counter

from tests.chaos.rounds import Report

_MOST_SHOWN = 40


def write_report(report: Report) -> str:
    """Markdown: runs by kind and end, disturbances by kind, violations."""
    return "\n\n".join([f"Seed {report.seed}.", _runs(report), _disturbances(report), _counts(report), _found(report)])


def _runs(report: Report) -> str:
    ends = sorted({end for _, end in report.runs})
    rows = [["accepted", *ends, "all"], ["---", *("---:" for _ in ends), "---:"]]
    for kind in sorted({kind for kind, _ in report.runs}):
        counts = [report.runs.get((kind, end), 0) for end in ends]
        rows.append([kind, *map(str, counts), str(sum(counts))])
    totals: Counter[str] = Counter()
    for (_, end), count in report.runs.items():
        totals[end] += count
    rows.append(["all", *(str(totals[end]) for end in ends), str(report.accepted)])
    return _table(rows)


def _disturbances(report: Report) -> str:
    rows = [["disturbance", "times"], ["---", "---:"]]
    rows += [[what.value, str(times)] for what, times in sorted(report.disturbances.items())]
    rows.append(["all", str(sum(report.disturbances.values()))])
    return _table(rows)


def _counts(report: Report) -> str:
    return _table([["beside", ""], ["---", "---:"], *([name, str(count)] for name, count in report.counts.items())])


def _found(report: Report) -> str:
    if not report.violations:
        return "No violations."
    shown = [f"- {violation}" for violation in report.violations[:_MOST_SHOWN]]
    if len(report.violations) > _MOST_SHOWN:
        shown.append(f"- and {len(report.violations) - _MOST_SHOWN} more")
    return "\n".join([f"{len(report.violations)} violations; everything is kept in {report.folder}:", *shown])


def _table(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
