"""Experiments, found by their folders: each is a package without a leading underscore.

They stand beside the library in a checkout and inside it in a wheel.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import cast

from jaxsens.cli.experiment import Experiment
from jaxsens.cli.wording import nearest, shown

PACKAGE = "jaxsens.experiments"


def experiment_names() -> list[str]:
    """All experiments, by their folders."""
    files = _experiments_folder().glob("[!_]*/__init__.py")
    return sorted(file.parent.name for file in files)


def canonical_name(name: str) -> str:
    """The experiment's name as its folder has it: a hyphen stands for an underscore.

    Raises:
      ValueError: there is none; names the nearest.
    """
    names = experiment_names()
    found = name.replace("-", "_")
    if found not in names:
        raise ValueError(f"there is no experiment {shown(name)}{nearest(name, names)}")
    return found


def load_experiment(name: str) -> Experiment:
    """The experiment's package; raises ValueError with the nearest name for an unknown one."""
    package = importlib.import_module(f"{_experiments_package()}.{canonical_name(name)}")
    return cast(Experiment, package)


def listing() -> str:
    """Every experiment with what it shows and costs."""
    lines = []
    for name in experiment_names():
        experiment = load_experiment(name)
        # Under `python -OO` there are no docstrings.
        first_line = (experiment.__doc__ or "").strip().partition("\n")[0]
        lines.append(f"{name:12} {first_line}".rstrip())
        lines += [f"{'':12}   {preset}: {cost}" for preset, cost in experiment.COST.items()]
    return "\n".join(lines)


def _experiments_folder() -> Path:
    library = Path(__file__).parents[1]
    inside = library / "experiments"
    return inside if inside.is_dir() else library.parent / "experiments"


def _experiments_package() -> str:
    """Imports the experiments by their place: beside the library in a checkout, inside in a wheel.

    Not by the name `experiments`, which may be the user's own package in the current folder.
    """
    if PACKAGE not in sys.modules:
        folder = _experiments_folder()
        spec = importlib.util.spec_from_file_location(
            PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} cannot be imported")
        sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[PACKAGE])
    return PACKAGE
