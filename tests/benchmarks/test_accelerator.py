"""Programs of all models lower for accelerators, and the page says what was counted."""

import json

import jax
import pytest

from benchmarks.accelerator import (
    DEVICES,
    PAGE,
    PLATFORMS,
    RESULTS,
    bounds,
    costs_of,
    device_programs,
    product_bytes,
    written,
)
from benchmarks.models import SETTINGS

MODELS = [
    pytest.param(model, marks=() if model == "mlp" else pytest.mark.slow) for model in SETTINGS
]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("model", MODELS)
def test_every_program_lowers_for_accelerators(model, platform):
    with jax.default_matmul_precision("highest"):
        programs = device_programs(model, platform)
        assert len(programs) == 4
        for way, program in programs.items():
            text = program.lowered(PLATFORMS[platform])
            assert "stablehlo.dot_general" in text or "stablehlo.convolution" in text, way
            assert "HIGHEST" in text, way


def test_the_precision_is_in_the_program():
    with jax.default_matmul_precision("default"):
        text = device_programs("mlp", "tpu")["plain"].lowered("tpu")
    assert "HIGHEST" not in text


def test_operations_of_the_plain_program_are_those_of_its_passes():
    """784·512 + 512·128 + 128·10 products, for T·S edits and the clean image."""
    costs = costs_of(device_programs("mlp", "gpu")["plain"])
    forward = 2e-9 * (784 * 512 + 512 * 128 + 128 * 10)
    assert costs["gflop"] == pytest.approx((49 * 5 + 1) * forward, rel=0.1)


def test_bytes_of_a_product_are_those_of_its_operands_and_its_result():
    def loop(x):
        return jax.lax.map(lambda row: row @ x, jax.numpy.ones((7, 5, 4)))

    jaxpr = jax.make_jaxpr(loop)(jax.numpy.ones((4, 3))).jaxpr
    assert product_bytes(jaxpr) == 7 * 4 * (5 * 4 + 4 * 3 + 5 * 3)


def test_bounds_are_by_operations_or_by_bytes():
    name, device = next(iter(DEVICES.items()))
    by_operations = bounds({"gflop": 1000.0, "gb": 1e-6})[f"{name} highest"]
    assert by_operations == pytest.approx(1e3 * 1e12 / device.highest)
    by_bytes = bounds({"gflop": 1e-6, "gb": 10.0})[f"{name} highest"]
    assert by_bytes == pytest.approx(1e3 * 1e10 / device.bandwidth)


def test_the_page_is_what_was_counted():
    page = PAGE.read_text("utf-8")
    rows = json.loads(RESULTS.read_text("utf-8"))["rows"]
    assert {row["model"] for row in rows} == set(SETTINGS)
    assert written(page, rows) == page
