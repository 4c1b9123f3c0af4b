"""Exact reuse of unperturbed work: what an edit cannot reach is computed once per example.

A model is traced once, as a list of operations (`trace`). An edit goes through them (`propagate`)
on values that are clean, differ in a window, or differ everywhere (`values`). Rules say what each
operation makes of a window; an operation without one gives a dense value, so that no model is
refused and no number is wrong. `costs` tells beforehand whether that saves anything.
"""

from jaxsens.incremental.costs import Costs, count_costs
from jaxsens.incremental.position_edits import SplitEdit, split_edit
from jaxsens.incremental.program import Program, make_program, table_size
from jaxsens.incremental.trace import UnmappableError

__all__ = [
    "Costs",
    "Program",
    "SplitEdit",
    "UnmappableError",
    "count_costs",
    "make_program",
    "split_edit",
    "table_size",
]
