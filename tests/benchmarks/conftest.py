"""Cells of the benchmark in the process of the tests."""

import importlib

import pytest

from benchmarks import cell


@pytest.fixture
def one_process(monkeypatch):
    """Cells and jobs run in this process, which has compiled most of what they need."""

    def run_module(module, *arguments, environment):
        importlib.import_module(module).main(*arguments)

    monkeypatch.setattr(cell, "run_module", run_module)
    monkeypatch.setattr(cell, "pin", lambda num_threads: None)
    monkeypatch.setattr(cell, "MATMUL_SIZE", 8)
