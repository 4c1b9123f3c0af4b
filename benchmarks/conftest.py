"""Doctests of the modules that need PyTorch run only where it is installed."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["torch_*.py", "captum_*.py"]
