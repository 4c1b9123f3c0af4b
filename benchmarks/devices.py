"""Suite "devices": what a step of training costs each of many devices, from compiled programs.

A step of the papers' models is compiled for 1, 4, 16 and 256 devices, each in a process that
pretends to have them, and nothing is run. XLA counts the FLOPs of the program of one device, and
the collectives in it say what it exchanges with the others. So the table shows how work is split,
not how fast it goes: that takes the devices.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import cell
from benchmarks.compare import check_known
from benchmarks.frame import Column, Options, Result, Row
from benchmarks.models import SETTINGS

DEFAULT_MODELS = ("mlp", "cnn", "vit")

#: Numbers of devices: one, a host of a TPU v5e, a v5e-16 and a v5e-256.
COUNTS = (1, 4, 16, 256)

#: A batch that fills the largest of these, beside the paper's, which is `--batch`.
LARGE_BATCH = 1_024

#: Of a TPU v5e chip, as Google publishes them: bfloat16 FLOP/s, and bytes/s between chips.
V5E_FLOPS, V5E_BYTES = 197e12, 200e9

COLUMNS = (
    Column("model", "model"),
    Column("parameters", "num_parameters", "{:,d}".format),
    Column("batch", "batch", "{:,d}".format),
    Column("devices", "num_devices", "{:d}".format),
    Column("MFLOP of a device", "flops", lambda flops: f"{flops / 1e6:,.1f}"),
    Column("of one device's", "share", "{:.4f}".format),
    Column("1/devices", "ideal", "{:.4f}".format),
    Column("collectives", "num_collectives", "{:d}".format),
    Column("MB sent by a device", "sent_bytes", lambda sent: f"{sent / 1e6:.2f}"),
    Column("v5e: compute at least, µs", "compute_us", "{:,.1f}".format),
    Column("v5e: exchange at least, µs", "exchange_us", "{:,.1f}".format),
)

NOTES = [
    "Per step, from programs compiled for so many devices and never run. MB sent counts each "
    "collective as a ring. The two last columns divide by what Google publishes of a v5e chip (197 "
    "TFLOP/s in bfloat16, 1,600 Gbit/s between chips): lower bounds that no program reaches, for "
    "comparing the two, not a forecast",
]


def run(options: Options) -> Result:
    """Every model and batch on every number of devices, each number in its own process."""
    models = options.models or DEFAULT_MODELS
    check_known("model", models, SETTINGS)
    batches = sorted({options.batch, LARGE_BATCH})
    rows: list[Row] = []
    failures: list[str] = []
    for num_devices in COUNTS:
        try:
            rows += compiled(models, batches, num_devices, options)
        except cell.CellError as error:
            failures.append(f"{num_devices} devices failed: {error}")
    order = [(model, batch) for model in models for batch in batches]
    return Result(compared(rows, order), COLUMNS, [*NOTES, *failures], agree=not failures)


def compiled(
    models: Sequence[str], batches: Sequence[int], num_devices: int, options: Options
) -> list[Row]:
    """The rows of one number of devices."""
    with tempfile.TemporaryDirectory(prefix="jaxsens-bench-") as folder:
        steps = [
            {
                "model": model,
                "batch": batch,
                "setting": asdict(SETTINGS[model]),
                "optimizer": "sgd",
            }
            for model in models
            for batch in batches
        ]
        found: list[Row] = cell.found_by(
            "benchmarks.devices_cell",
            {"num_devices": num_devices, "steps": steps},
            Path(folder),
            num_threads=options.num_threads,
            JAX_PLATFORMS="cpu",
            # What LLVM makes of a program changes neither its FLOPs nor its collectives.
            XLA_FLAGS=f"--xla_force_host_platform_device_count={num_devices} "
            "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
        )
    return [{**row, "num_devices": num_devices} for row in found]


def compared(rows: Sequence[Row], order: Sequence[tuple[str, int]]) -> list[Row]:
    """The rows by model, batch and devices, beside what one device does alone."""
    alone = {(row["model"], row["batch"]): row for row in rows if row["num_devices"] == 1}
    made = []
    for row in sorted(rows, key=lambda row: order.index((row["model"], row["batch"]))):
        base = alone.get((row["model"], row["batch"]))
        made.append(
            {
                **row,
                "share": row["flops"] / base["flops"] if base else None,
                "ideal": 1 / row["num_devices"],
                "compute_us": row["flops"] / V5E_FLOPS * 1e6,
                "exchange_us": row["sent_bytes"] / V5E_BYTES * 1e6,
            }
        )
    return made
