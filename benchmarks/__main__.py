"""`python -m benchmarks [NAME…]`: run them, print a table each, and write JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import kernels
from benchmarks.common import Row

NAMES = ("imports", "plan", "audit", "build", "pipeline", "publish", "kernels")


def main() -> None:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(prog="nox -s bench --", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("-o", "--output", type=Path, default=Path("out/bench"), metavar="DIR")
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES:
            parser.error(f"no benchmark {name!r}; there are: {', '.join(NAMES)}")
    for name in dict.fromkeys(options.names or NAMES):
        if name == "kernels":
            # Its table is one of sizes, and not of goals.
            kernels.main(["-o", str(options.output)])
            continue
        clock = time.monotonic()
        rows = importlib.import_module(f"benchmarks.{name}").measure()
        show(name, rows, time.monotonic() - clock)
        options.output.mkdir(parents=True, exist_ok=True)
        content: list[dict[str, object]] = [{**asdict(row), "verdict": row.verdict} for row in rows]
        (options.output / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def show(name: str, rows: list[Row], seconds: float) -> None:
    """Print a benchmark's table."""
    table = Table(title=f"{name} (took {seconds:.0f} s)", title_justify="left")
    table.add_column("what")
    for heading in ("measured", "goal"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for row in rows:
        goal = "" if row.goal is None else f"≤ {row.goal:g} {row.unit}"
        table.add_row(row.what, f"{row.value:.3g} {row.unit}", goal, row.verdict)
    Console().print(table)


main()
