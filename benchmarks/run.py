"""Command line of the benchmarks.

    python -m benchmarks.run [--suite sensitivity | training | scaling | tolerance | many-runs |
                                      worst-case | devices | occlusion | pytorch | foreign |
                                      start]
                             [--models mlp cnn vit] [--num-images 100] [--repeats 3]
                             [--threads 2] [--json FILE]

Prints the machine and the suite's tables, and ends with status 1 if a cell failed or the methods
did not measure the same thing. benchmarks/README.md says how to read the columns.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import tyro

from benchmarks import (
    devices,
    foreign,
    frame,
    many_runs,
    occlusion,
    pytorch,
    scaling,
    sensitivity,
    start,
    tolerance,
    training,
    worst_case,
)

SUITES: dict[str, Callable[[frame.Options], frame.Result]] = {
    "sensitivity": sensitivity.run,
    "training": training.run,
    "scaling": scaling.run,
    "tolerance": tolerance.run,
    "many-runs": many_runs.run,
    "worst-case": worst_case.run,
    "devices": devices.run,
    "occlusion": occlusion.run,
    "pytorch": pytorch.run,
    "foreign": foreign.run,
    "start": start.run,
}


def main(args: Sequence[str] | None = None) -> int:
    """Runs a suite and prints it; the exit status."""
    try:
        return _run(tyro.cli(frame.Options, args=args))
    except frame.UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(options: frame.Options) -> int:
    machine = frame.machine()
    print(frame.describe(machine, options.num_threads), flush=True)
    result = SUITES[options.suite](options)
    print()
    print(frame.markdown_table(result.columns, result.rows))
    for table in result.tables:
        print(f"\n{table.title}\n\n{frame.markdown_table(table.columns, table.rows)}")
    for note in result.notes:
        print(f"\n{note}")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(_record(options, machine, result), indent=1) + "\n")
        print(f"\nwritten to {options.json}")
    return 0 if result.agree else 1


def _record(
    options: frame.Options, machine: dict[str, Any], result: frame.Result
) -> dict[str, Any]:
    return {
        "options": asdict(options)
        | {
            "json": str(options.json),
            "figures": str(options.figures),
            "threads": options.num_threads,
        },
        "machine": machine,
        "rows": result.rows,
        "tables": {table.title: table.rows for table in result.tables},
        "notes": result.notes,
        "agree": result.agree,
    }


if __name__ == "__main__":
    sys.exit(main())
