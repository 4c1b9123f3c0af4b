"""Doctests of the modules that need PyTorch or captum run only where these are installed."""

from importlib.util import find_spec

_THAT_NEED = {"torch": ["torch_*.py", "pytorch_cell.py"], "captum": ["captum_*.py"]}
collect_ignore_glob = [
    pattern
    for package, patterns in _THAT_NEED.items()
    if find_spec(package) is None
    for pattern in patterns
]
