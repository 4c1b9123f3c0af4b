"""Examples in files and in batches: the numbers of one array in memory, and memory that is flat."""

import os
import subprocess
import sys
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Bits, Donor, Gaussian, Patches, Perturbation, Resample, Tokens, sensitivity
from jaxsens.measurement import batches

KEY = jax.random.key(0)
NOISE = Perturbation(Bits(), Gaussian(sigma=1.0))
X = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)


def linear(w, x):
    return jnp.tanh(x) @ w


def measured(x, **options):
    return sensitivity(linear, W, x, NOISE, 3, **{"key": KEY, **options})


@pytest.fixture(scope="module")
def whole():
    return measured(X)


def stored(folder, array, mode="r"):
    np.save(folder / "x.npy", array)
    return np.load(folder / "x.npy", mmap_mode=mode)


def same(a, b):
    np.testing.assert_array_equal(a.totals, b.totals)
    np.testing.assert_array_equal(a.counts, b.counts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", ["r", "c"])
def test_a_memmap_gives_the_same_draws_as_the_array(tmp_path, whole, dtype, mode):
    x = stored(tmp_path, X.astype(dtype), mode)
    same(measured(x), whole)
    np.testing.assert_array_equal(x, X)


def test_a_dataset_of_h5py_does_too(tmp_path, whole):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = X
        same(measured(file["x"]), whole)


def test_a_tolerance_draws_from_a_memmap_by_index(tmp_path):
    x = np.tile(X, (20, 1))
    there = measured(stored(tmp_path, x), tolerance=0.05)
    assert there.provenance.positions == "random"
    same(there, measured(x, tolerance=0.05))


def test_ids_of_a_memmap_are_checked_when_they_are_read(tmp_path):
    table = np.arange(10.0, dtype=np.float32) - 4.5
    ids = np.random.default_rng(0).integers(0, 10, (40, 5))
    model, edit = (lambda w, x: w[x].sum(axis=1)), Perturbation(Tokens(), Resample(10))
    expected = sensitivity(model, table, ids, edit, 2, key=KEY)
    same(sensitivity(model, table, stored(tmp_path, ids), edit, 2, key=KEY), expected)
    ids[33, 2] = 12
    with pytest.raises(ValueError, match="got x with ids from 0 to 12"):
        sensitivity(model, table, stored(tmp_path, ids), edit, 2, key=KEY)
    masked = np.ones(ids.shape, bool)
    masked[33, 2] = False
    table = np.append(table, [0.0, 0.0, 0.0]).astype(np.float32)
    sensitivity(model, table, stored(tmp_path, ids), edit, 2, key=KEY, mask=masked)


def test_the_first_bad_example_of_a_file_is_named(tmp_path):
    bad = X.copy()
    bad[271, 1] = np.nan
    with pytest.raises(ValueError, match=r"non-finite values in 1 of .*, first in example 271"):
        measured(stored(tmp_path, bad))


def test_a_file_without_examples_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"x has no examples: its shape is \(0, 6\)"):
        measured(stored(tmp_path, X[:0]))


def test_donors_come_from_the_whole_file(tmp_path):
    donor = Perturbation(Bits(), Donor())
    expected = sensitivity(linear, W, X, donor, 2, key=KEY)
    same(sensitivity(linear, W, stored(tmp_path, X), donor, 2, key=KEY), expected)


def test_memory_stays_flat_while_a_file_is_measured(tmp_path):
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (8_000, 28, 28, 1))
    num_bytes, grid = x.nbytes, Patches(28)
    x[::7] = 1.0
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    noise = Perturbation(grid, Gaussian(sigma=1.0))

    def model(_, x):
        return x.sum(axis=(1, 2, 3))

    sensitivity(model, (), np.asarray(x[:300]), noise, 1, key=KEY)
    tracemalloc.start()
    found = sensitivity(model, (), x, noise, 1, key=KEY, chunk_bytes=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.num_examples == 8_000
    assert peak < num_bytes / 4


_LARGE = """
import resource, sys
import jax, numpy as np
import jaxsens
x = np.load(sys.argv[1], mmap_mode="r")
cover = jaxsens.Perturbation(jaxsens.Patches(224), jaxsens.Replace(0.5))
def model(w, x):
    return x[:, ::8, ::8].reshape(len(x), -1) @ w
w = np.random.default_rng(0).normal(size=(28 * 28 * 3, 4)).astype(np.float32)
options = dict(key=jax.random.key(0), incremental=False, check=False)
peaks = []
for part in (x[:1000], x):
    est = jaxsens.sensitivity(model, w, part, cover, 1, **options)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
est = jaxsens.sensitivity(model, w, x, cover, 1, tolerance=0.05, **options)
peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(x.nbytes / 2**30, *peaks, est.num_examples)
"""


@pytest.mark.slow
def test_five_gigabytes_are_measured_in_the_memory_of_a_thousand_images(tmp_path):
    shape = (9_000, 224, 224, 3)
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, shape)  # all zeros: sparse
    flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
    done = subprocess.run(
        [sys.executable, "-c", _LARGE, str(tmp_path / "x.npy")],
        capture_output=True, text=True, check=True, env={**os.environ, "XLA_FLAGS": flags},
    )  # fmt: skip
    gigabytes, small, all_of_it, drawn, num = map(float, done.stdout.split())
    print(done.stdout)
    assert gigabytes > 5
    assert all_of_it < small + 300, (small, all_of_it)
    assert drawn < small + 300
    assert 500 <= num < 9_000  # as many as the pilot has, of images that are all alike


# Batches.


@pytest.mark.parametrize("size", [7, 300])
def test_batches_give_the_same_draws_as_the_array(whole, size, monkeypatch):
    monkeypatch.setattr(batches, "BLOCK_EXAMPLES", 128)
    seen = []
    found = measured(
        (X[i : i + size] for i in range(0, 300, size)),
        progress=lambda done, total, mean: seen.append((done, mean)),
    )
    same(found, whole)
    assert found.provenance.num_passes == whole.provenance.num_passes
    assert found.provenance.merged_seeds == ()
    assert seen[-1] == (300, pytest.approx(whole.mean))


def test_what_can_be_made_an_array_is_one(whole):
    same(measured(X.tolist()), whole)


def test_batches_carry_their_context_and_mask():
    def model(w, x, scale):
        return (x * scale[:, None]) @ w

    scale, mask = np.linspace(1, 2, 300).astype(np.float32), X > -1
    expected = sensitivity(model, W, X, NOISE, 2, key=KEY, context=scale, mask=mask)
    parts = (
        {"x": X[i : i + 50], "context": scale[i : i + 50], "mask": mask[i : i + 50]}
        for i in range(0, 300, 50)
    )
    same(sensitivity(model, W, parts, NOISE, 2, key=KEY), expected)


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        ([], {}, "gives no batch"),
        ([X], {"tolerance": 0.1}, "draw examples by their index"),
        ([X], {"positions": "random"}, "draw examples by their index"),
        ([X], {"mask": X > 0}, "mask must come with the batches"),
        ([X], {"perturbation": Perturbation(Bits(), Donor())}, "finds other examples by"),
        ([X, X[:, :5]], {}, r"batch 1 of x has examples of shape \(5,\)"),
        ([X, X.astype(np.int32)], {}, "batch 1 of x has examples .* dtype int32"),
        ([(X, X[:, 0])], {}, "x must be an array|batch 0 of x must be"),
        ([{"x": X, "labels": X}], {}, "batch 0 of x must be an array, or a mapping"),
        ([{"y": X}], {}, "batch 0 of x must be an array, or a mapping"),
    ],
)
def test_bad_batches_are_refused_in_one_line(given, options, said):
    with pytest.raises(ValueError, match=said) as caught:
        sensitivity(
            linear,
            W,
            iter(given),
            **{"perturbation": NOISE, "num_samples": 1, "key": KEY, **options},
        )
    assert "\n" not in str(caught.value)


def test_occlusion_takes_files_and_batches_too(tmp_path):
    images = X[:, :4].reshape(-1, 2, 2, 1)
    grid = Patches(1)

    def model(w, x):
        return x.reshape(len(x), 4) @ w[:4]

    expected = jaxsens.occlusion(model, W, images, grid)
    same(jaxsens.occlusion(model, W, stored(tmp_path, images), grid), expected)
    same(jaxsens.occlusion(model, W, iter([images[:100], images[100:]]), grid), expected)
