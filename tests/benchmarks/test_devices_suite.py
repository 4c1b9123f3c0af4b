"""The suite "devices": a device's share of a training step, from its compiled program."""

import jax
import pytest

from benchmarks import devices, devices_cell, models


def test_a_step_on_eight_devices_has_an_eighth_of_the_work(all_devices):
    setting = models.SETTINGS["mlp"]
    found = devices_cell.row(setting, 64, "sgd", jax.device_count())
    # Three products of matrices for every weight, of the 8 examples of a device; the first layer
    # needs no gradient of its input.
    assert found["flops"] == pytest.approx(6 * 8 * found["num_parameters"], rel=0.4)
    of_gradients = 2 * 7 / 8 * 4 * found["num_parameters"]
    assert of_gradients <= found["sent_bytes"] < 1.01 * of_gradients


def test_devices_are_compared_with_one():
    rows = [
        {"model": "mlp", "batch": 8, "num_devices": num, "flops": 1e6 / num, "sent_bytes": 2e5}
        for num in (1, 4)
    ]
    alone, four = devices.compared(rows, [("mlp", 8)])
    assert (alone["share"], four["share"], four["ideal"]) == (1.0, 0.25, 0.25)
    assert four["exchange_us"] == pytest.approx(1.0)
