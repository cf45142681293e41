"""Results of benchmarks: a table on standard output, JSON in `.bench/`, tables in the docs.

Every benchmark calls `publish`. `python -m benchmarks.results` then copies the tables into
`benchmarks/README.md`, between the comments `bench:NAME` and `/bench`.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import psutil

from benchmarks.processes import ROOT, Measured

FOLDER = Path(os.environ.get("SINGER_SPARK_BENCH", ROOT / ".bench"))
PAGE = ROOT / "benchmarks" / "README.md"
_BLOCK = re.compile(r"(<!-- bench:([\w-]+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


@dataclass(frozen=True)
class Case:
    """The runs of one case.

    Attributes:
        name: What was measured.
        seconds: Wall time of each run.
        peak_mib: Highest memory of each program's process tree, in the order of the pipe.
        reference: Name of the case that it is compared with.
        ratio: Median of its seconds over those of the reference in the same round.
    """

    name: str
    seconds: tuple[float, ...]
    peak_mib: tuple[float, ...]
    reference: str
    ratio: float

    def cells(self) -> list[str]:
        """Return the case as cells of a table."""
        spread = f"{min(self.seconds):.1f} to {max(self.seconds):.1f}"
        memory = " + ".join(f"{peak:,.0f}" for peak in self.peak_mib)
        median = f"{statistics.median(self.seconds):.1f}"
        return [self.name, median, spread, f"{self.ratio:.2f}", f"{memory} MiB"]


def cases_of(
    results: Mapping[str, Sequence[Measured]], reference: Callable[[str], str]
) -> list[Case]:
    """Return the cases of interleaved runs.

    Args:
        results: Name of the case → its runs, as many for each.
        reference: Returns the name of the case that a case is compared with.
    """
    cases = []
    for name, runs in results.items():
        other = reference(name)
        pairs = zip(runs, results[other], strict=True)
        cases.append(
            Case(
                name,
                tuple(run.seconds for run in runs),
                tuple(map(max, zip(*(run.peak_mib for run in runs), strict=True))),
                other,
                statistics.median(run.seconds / same.seconds for run, same in pairs),
            )
        )
    return cases


def table(cases: Sequence[Case]) -> str:
    """Return cases as a table in Markdown."""
    others = {case.reference for case in cases}
    compared = f"times {others.pop()}" if len(others) == 1 else "times its reference"
    head = ["", "seconds, median", "spread", compared, "peak memory"]
    return markdown(head, [case.cells() for case in cases])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; all columns but the first are aligned to the right."""
    lines = [head, [":--", *["--:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def publish(
    benchmark: str, results: Mapping[str, Sequence[Measured]], reference: str | Callable[[str], str]
) -> None:
    """Print the results of a benchmark, and save them for the docs.

    Args:
        benchmark: Its name.
        results: As `benchmarks.processes.interleaved` returns them.
        reference: The case that others are compared with, or what returns it for a case.
    """
    cases = cases_of(results, reference if callable(reference) else lambda _: reference)
    save(benchmark, table(cases), [asdict(case) for case in cases])


def save(benchmark: str, shown: str, cases: Sequence[Mapping[str, object]]) -> None:
    """Print a table, and save it with its figures and what tells of the machine."""
    print(f"\n{benchmark}\n{shown}", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    document = {
        "benchmark": benchmark,
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "python": platform.python_version(),
        },
        "cases": cases,
        "table": shown,
    }
    (FOLDER / f"{benchmark}.json").write_text(json.dumps(document, indent=2) + "\n")


def blocks(page: str) -> list[str]:
    """Return the benchmarks whose tables a page shows."""
    return [match[2] for match in _BLOCK.finditer(page)]


def filled(page: str, folder: Path) -> str:
    """Return a page with the tables of all benchmarks in a folder; other blocks stay."""

    def block(match: re.Match[str]) -> str:
        path = folder / f"{match[2]}.json"
        shown = json.loads(path.read_text())["table"] if path.exists() else None
        return match[0] if shown is None else f"{match[1]}{shown}{match[3]}"

    return _BLOCK.sub(block, page)


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(), FOLDER))


if __name__ == "__main__":
    main()
