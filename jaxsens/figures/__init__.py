"""The figures of the papers, drawn from numbers and saved as PNG, PDF and CSV.

Every function returns a matplotlib `Figure`. The same numbers give the same bytes with the same
version of matplotlib. Sensitivity and accuracy are fractions in [0, 1] everywhere; percentages
would be drawn off scale.
"""

from jaxsens.figures.bar_charts import bars, grouped_bars
from jaxsens.figures.cost_growth import growth
from jaxsens.figures.curves import (
    Band,
    Curve,
    bands,
    panels,
    sensitivity_paths,
    training_curves,
)
from jaxsens.figures.heatmaps import patch_heatmaps
from jaxsens.figures.plotted_numbers import csv_of
from jaxsens.figures.scatter_plot import scatter
from jaxsens.figures.style import PALETTE, save

__all__ = [
    "PALETTE",
    "Band",
    "Curve",
    "bands",
    "bars",
    "csv_of",
    "grouped_bars",
    "growth",
    "panels",
    "patch_heatmaps",
    "save",
    "scatter",
    "sensitivity_paths",
    "training_curves",
]
