"""Doctests of the modules that need PyTorch or captum run only where these are installed."""

from importlib.util import find_spec

collect_ignore_glob = [
    f"{package}_*.py" for package in ("torch", "captum") if find_spec(package) is None
]
