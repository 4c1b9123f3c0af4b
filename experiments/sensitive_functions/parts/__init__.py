"""The parts of the experiment, one module each, found by their names.

A part is a module with `run(config, folder) -> PartFindings`. It keeps what it trains and measures
in the folder under names of its own, so that every part can be run alone, killed and resumed.
"""

import importlib
from typing import Literal, get_args

from jaxsens.reporting.run_folder import RunFolder

from ..outcome import PartFindings

Part = Literal[
    "scaling",
    "tradeoff",
    "dynamics",
    "generalisation",
    "scratchpad",
    "random-init",
    "length",
    "inequality",
]
PARTS: tuple[Part, ...] = get_args(Part)


def run_part(name: Part, config: object, folder: RunFolder) -> PartFindings:
    """Runs the part of that name."""
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    findings: PartFindings = module.run(config, folder)
    return findings
