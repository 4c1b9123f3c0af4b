"""Digests: the same for the same content, another for any change of it."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.core import fingerprint
from jaxsens.core.fingerprint import digest
from jaxsens.models import MLP


@dataclasses.dataclass(frozen=True)
class Pair:
    x: Any
    y: Any = None
    note: str = "here"


def halved(x):
    return x / 2


X = np.arange(6, dtype=np.float32).reshape(2, 3)

#: Values that must all differ from each other.
DIFFERENT = [
    None,
    *(0, 1, -1, 0.0, 1.0, True, False, "", "0", "a", b"a", "None"),
    *((), (0,), (0, 0), ((0,), 0), (0, (0,)), ("a", "b"), ("ab",), ("a", "", "b")),
    *({}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": {"b": 1}}),
    *(X, X + 1, X.T, X.reshape(3, 2), X.astype(np.float64), X[:1], X[:, :0], X.view(np.int32)),
    *(np.float32(1), np.int8(1), np.array("a"), jnp.ones(2, jnp.bfloat16), jnp.ones(2)),
    *(jax.random.key(0), jax.random.key(1), jax.random.key(0, impl="rbg")),
    *(halved, jnp.sin, nn.relu, nn.gelu, functools.partial(halved, 1), functools.partial(halved)),
    *(Pair(X), Pair(X, 1), Pair(X, note="there"), Pair(X + 1), Pair(None, X)),
    *(MLP(2), MLP(3), jnp.float32, np.dtype("float32"), np.ndarray),
]


def test_different_values_have_different_digests():
    found = [digest(value) for value in DIFFERENT]
    clashes = [
        (DIFFERENT[i], DIFFERENT[j])
        for i in range(len(found))
        for j in range(i)
        if found[i] == found[j]
    ]
    # The two names of one dtype.
    assert clashes in ([], [(np.dtype("float32"), jnp.float32)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, "a"], (1, "a")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (X, jnp.asarray(X)),
        (X.T, np.ascontiguousarray(X.T)),
        (Pair(X), Pair(X.copy(), None)),
        (MLP(2), MLP(2, name=None)),
        (functools.partial(halved, x=1), functools.partial(halved, x=1)),
    ],
)
def test_the_same_content_has_the_same_digest(one, other):
    assert digest(one) == digest(other)


def test_a_digest_outlives_the_process():
    """It stands in files: what it is made of must not change, nor hold an address."""
    assert digest(("a", 1, Pair(None, halved))) == "3ee747420b6e55e5"


def test_the_fingerprint_of_data_names_its_parts_and_leaves_out_where_it_is_from():
    data = {"train": Pair(X, ("a", "b"), note="/some/folder"), "n": 3}
    assert fingerprint.fingerprint(data) == {"train.x": digest(X), "train.y": digest(("a", "b"))}
    assert fingerprint.fingerprint(None) == {}


def test_what_was_computed_can_be_left_out():
    class Some:
        def sources(self):
            return {"x": X}

    assert list(fingerprint.fingerprint(Some())) == ["x"]


def test_surroundings_name_versions_random_numbers_and_cores():
    found = fingerprint.surroundings()
    assert found["jax"] == jax.__version__
    assert found["prng"] == "threefry2x32"
    assert found["cores"] >= 1
