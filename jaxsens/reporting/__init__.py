"""What a run leaves behind: its folder, records and cached stages, its results and report page."""

from jaxsens.reporting.cached import (
    cached_estimate,
    cached_estimate_stage,
    cached_file,
    cached_stage,
)
from jaxsens.reporting.example_maps import (
    ExampleMap,
    ExampleMaps,
    image_maps,
    read_maps,
    text_maps,
    write_maps,
)
from jaxsens.reporting.machine import environment
from jaxsens.reporting.progress import Bar, say, step_moved, steps
from jaxsens.reporting.records import Record, records_of, total_seconds
from jaxsens.reporting.results import Claim, Figure, Findings, Results, Table, grouped
from jaxsens.reporting.run_folder import RunFolder, RunLostError, WorkdirError

__all__ = [
    "Bar",
    "Claim",
    "ExampleMap",
    "ExampleMaps",
    "Figure",
    "Findings",
    "Record",
    "Results",
    "RunFolder",
    "RunLostError",
    "Table",
    "WorkdirError",
    "cached_estimate",
    "cached_estimate_stage",
    "cached_file",
    "cached_stage",
    "environment",
    "grouped",
    "image_maps",
    "read_maps",
    "records_of",
    "say",
    "step_moved",
    "steps",
    "text_maps",
    "total_seconds",
    "write_maps",
]
