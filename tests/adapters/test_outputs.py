"""Which output is the logits: a choice that is clear, or a question."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Bits, Gaussian, Perturbation, adapters
from jaxsens.adapters.outputs import checked_choice, chosen_output

A, B = np.ones((2, 3)), np.zeros((2, 5))


class Pair(NamedTuple):
    features: Any
    logits: Any


@dataclass
class Record:
    logits: Any = None
    loss: Any = None


@pytest.mark.parametrize(
    ("outputs", "output", "expected"),
    [
        (A, None, A),
        ((A,), None, A),
        ([A, B], 1, B),
        ((A, B), -1, B),
        ({"only": A}, None, A),
        ({"features": A, "logits": B}, None, B),
        ({"features": A, "logits": B}, "features", A),
        (OrderedDict(loss=None, hidden=A), None, A),
        (Pair(A, B), None, B),
        (Pair(A, B), 0, A),
        (Record(B), None, B),
        (Record(B, A), "loss", A),
    ],
)
def test_the_logits_are_found(outputs, output, expected):
    assert chosen_output(outputs, output) is expected


@pytest.mark.parametrize(
    ("outputs", "output", "line"),
    [
        ((A, B), None, r"tuple\(0: \(2, 3\), 1: \(2, 5\)\): say .* such as output=0$"),
        ((A, B), 2, r"such as output=0; got output=2$"),
        ({"a": A, "b": B}, None, r"dict\('a': \(2, 3\), 'b': \(2, 5\)\): .* such as output='a'$"),
        ({"a": A, "b": B}, "c", r"such as output='a'; got output='c'$"),
        (A, 0, r"the model returns one array, so that there is no output=0: leave output= out$"),
        (object(), None, r"the model returns object\(\): say which is the logits"),
    ],
)
def test_what_is_not_clear_is_asked(outputs, output, line):
    with pytest.raises(ValueError, match=line) as error:
        chosen_output(outputs, output)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("output", [True, 1.5, b"x", ["a"]])
def test_a_choice_is_a_name_or_a_number(output):
    with pytest.raises(ValueError, match=r"adapters.keras\(output=\) must be the name of a field"):
        checked_choice("keras", output)


def linear(params, x):
    return x @ params


def test_an_adapted_model_stands_for_two_arguments():
    x, noise = np.ones((4, 6), np.float32), Perturbation(Bits(), Gaussian(sigma=1.0))
    model = adapters.Adapted(linear, jnp.eye(6)[:, :3])
    key = jax.random.key(0)
    as_one = jaxsens.sensitivity(model, x, noise, 7, key=key)
    as_two = jaxsens.sensitivity(*model, x, noise, num_samples=7, key=key)
    named = jaxsens.sensitivity(
        apply_fn=linear, params=model.params, x=x, perturbation=noise, num_samples=7, key=key
    )
    np.testing.assert_array_equal(as_one.totals, as_two.totals)
    np.testing.assert_array_equal(as_one.totals, named.totals)
    assert str(jaxsens.explain(model, x, noise)) == str(jaxsens.explain(*model, x, noise))


def test_no_framework_is_imported_before_it_is_used():
    import subprocess
    import sys

    program = (
        "import sys, jaxsens; assert jaxsens.adapters.torch; "
        "assert not {'torch', 'equinox', 'haiku', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
