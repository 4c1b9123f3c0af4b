"""Pictures to corrupt: real CIFAR-10 if JAXSENS_DATA has it, else smooth fields with edges."""

import functools
import os
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxsens.data as data
from jaxsens import corruptions

# Read here, before the fixture that hides it.
ROOT = os.environ.get("JAXSENS_DATA", "")
NUM = 48


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.delenv("JAXSENS_DATA", raising=False)


@pytest.fixture(scope="session")
def root():
    """The folder of real data; the test is skipped without."""
    if not ROOT:
        pytest.skip("JAXSENS_DATA is not set")
    return Path(ROOT)


@pytest.fixture(scope="session")
def pictures():
    """uint8 (48, 32, 32, 3)."""
    if not ROOT:
        return synthetic(NUM)
    try:
        return corruptions.to_uint8(data.load("cifar10", "test", data_dir=ROOT)[0][:NUM])
    except data.DatasetNotFoundError:
        return synthetic(NUM)


@pytest.fixture(scope="session")
def floats(pictures):
    """The same pictures as float32 in [0, 1]."""
    return pictures.astype(np.float32) / 255


@pytest.fixture(scope="session")
def corrupted(pictures):
    """A function of name and severity: the corrupted pictures, computed once."""
    return functools.cache(
        lambda name, severity: corruptions.corrupt(
            pictures, name, severity, key=jax.random.key(severity)
        )
    )


@pytest.fixture(scope="session")
def apply():
    """A function that maps one corruption over pictures (n, H, W, 3) in [0, 1]."""

    compiled = functools.cache(lambda corruption: jax.jit(jax.vmap(corruption)))

    def mapped(corruption, floats, seed=0):
        keys = jax.random.split(jax.random.key(seed), len(floats))
        return np.asarray(compiled(corruption)(keys, floats))

    return mapped


def synthetic(num):
    """Slow colour gradients, a dark or bright rectangle on each, and a fine grain."""
    rng = np.random.default_rng(0)
    y, x = np.meshgrid(np.arange(32), np.arange(32), indexing="ij")
    images = np.empty((num, 32, 32, 3))
    for image in images:
        for c in range(3):
            wave = rng.uniform(-0.25, 0.25, 2)
            image[..., c] = 0.45 + 0.25 * np.sin(wave[0] * y + wave[1] * x + rng.uniform(0, 6))
        for _ in range(3):
            top, left = rng.integers(0, 24, 2)
            height, width = rng.integers(4, 16, 2)
            image[top : top + height, left : left + width] = rng.uniform(0.05, 0.95, 3)
    images += 0.03 * rng.standard_normal(images.shape)
    return (np.clip(images, 0, 1) * 255).round().astype(np.uint8)
