"""What a run leaves behind: its folder, its results, report page and messages."""

from jaxsens.reporting.environment import environment
from jaxsens.reporting.progress import Bar, say
from jaxsens.reporting.results import Claim, Figure, Results, Table
from jaxsens.reporting.run_folder import RunFolder, RunLostError, WorkdirError

__all__ = [
    "Bar",
    "Claim",
    "Figure",
    "Results",
    "RunFolder",
    "RunLostError",
    "Table",
    "WorkdirError",
    "environment",
    "say",
]
