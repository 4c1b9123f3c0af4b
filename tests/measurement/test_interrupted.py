"""A measurement that is interrupted goes on after its finished calls, to the same bits."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens.core import call_log
from jaxsens.measurement import dispatch

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4, 4, 1)).astype(np.float32)
MANY = np.tile(X, (20, 1, 1, 1))
W = {"a": RNG.normal(size=(16, 8)).astype(np.float32), "b": np.eye(8, 3, dtype=np.float32)}
NOISE = jaxsens.Perturbation(jaxsens.Patches(2), jaxsens.Gaussian(sigma=1.0))
OPTIONS = {"key": jax.random.key(3), "devices": jax.devices()[:1], "chunk_bytes": 3000}


def apply_fn(w, x):
    return jnp.tanh(x.reshape(len(x), -1) @ w["a"]) @ w["b"]


def sensitivity(x=X, **options):
    return jaxsens.sensitivity(apply_fn, W, x, NOISE, 3, **OPTIONS | options)


MEASUREMENTS = {
    "all": lambda: sensitivity(MANY[:599], incremental=False),
    "reuse": lambda: sensitivity(MANY[:300], incremental=True),
    "random": lambda: sensitivity(positions="random"),
    "tolerance": lambda: sensitivity(MANY, tolerance=0.05, chunk_bytes=30_000),
    "sharpness": lambda: jaxsens.sharpness(
        apply_fn, W, MANY, jaxsens.Gaussian(sigma=0.3), 3, **OPTIONS
    ),
    "worst case": lambda: jaxsens.worst_case(
        apply_fn, W, X, jaxsens.Perturbation(jaxsens.Patches(2), jaxsens.Ball(1.0)),
        num_starts=2, num_steps=3, **OPTIONS,
    ),
}  # fmt: skip


class Memory:
    """Keeps pieces until it has `limit` of them; then the process is interrupted."""

    def __init__(self, limit=10**9):
        self.pieces, self.limit = {}, limit

    def load(self, log, is_shared):
        return [piece for (of, _), piece in self.pieces.items() if of == log]

    def save(self, log, is_shared, number, piece):
        if len(self.pieces) == self.limit:
            raise KeyboardInterrupt
        assert (log, number) not in self.pieces
        self.pieces[log, number] = piece


def content(estimate):
    """All but where and how fast."""
    found = json.loads(estimate.to_json())
    found.pop("provenance")
    return found


@pytest.mark.parametrize("num_devices", [1, 4])
@pytest.mark.parametrize("name", ["all", "sharpness"])
def test_calls_are_cut_to_what_may_be_lost(monkeypatch, name, num_devices):
    monkeypatch.setitem(OPTIONS, "devices", jax.devices()[:num_devices])
    # Several devices, all of whose groups are never full.
    monkeypatch.setitem(globals(), "MANY", MANY[:1187])
    expected, sizes = content(MEASUREMENTS[name]()), []
    for seconds in (1e-6, 1e6):
        monkeypatch.setattr(dispatch, "SECONDS_PER_CALL", seconds)
        store = Memory()
        with call_log.keeping(store):
            assert content(MEASUREMENTS[name]()) == expected
        sizes.append(len(store.pieces))
    assert sizes[0] > 3 * sizes[1]


@pytest.fixture(autouse=True)
def _always_saves(monkeypatch):
    monkeypatch.setattr(call_log, "SECONDS_BETWEEN_SAVES", 0.0)


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_interrupted_at_any_of_three_moments(name):
    measure = MEASUREMENTS[name]
    expected, store = content(measure()), Memory()
    with call_log.keeping(store):
        assert content(measure()) == expected
    num_calls = len(store.pieces)
    assert num_calls > 2
    for limit in (1, num_calls // 2, num_calls - 1):
        store = Memory(limit)
        with call_log.keeping(store), pytest.raises(KeyboardInterrupt):
            measure()
        known, store.limit = [*store.pieces], 10**9
        with call_log.keeping(store):
            assert content(measure()) == expected
        # What was known was taken, and not kept again, as `save` sees to.
        assert len(known) == limit
        assert [*store.pieces][:limit] == known


def test_results_of_other_weights_are_forgotten(monkeypatch):
    store = Memory()
    with call_log.keeping(store):
        sensitivity(incremental=False)
    monkeypatch.setitem(W, "b", W["b"][:, ::-1] * 2)
    expected = content(sensitivity(incremental=False))
    fresh = Memory()
    fresh.load = store.load
    with call_log.keeping(fresh):
        assert content(sensitivity(incremental=False)) == expected
    assert fresh.pieces


def test_nothing_is_kept_between_saves(monkeypatch):
    monkeypatch.setattr(call_log, "SECONDS_BETWEEN_SAVES", 1e9)
    store = Memory()
    with call_log.keeping(store):
        sensitivity()
    assert not store.pieces
