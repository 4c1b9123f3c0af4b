"""Old names still work, with a warning at the user's own line; both names at once do not."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens.core.notices import renamed_attribute, renamed_keyword
from jaxsens.text.buckets import Bucket, into_buckets

ROOT = Path(__file__).parents[2]
X = np.ones((2, 3), np.float32)
FLIP = jaxsens.Perturbation(jaxsens.Bits(), jaxsens.Flip())
SEQUENCES = [np.array(ids, np.int32) for ids in ([5, 6, 7], [5])]
RESAMPLE = jaxsens.Perturbation(jaxsens.Tokens(), jaxsens.Resample(10))


def parity(params, x):
    return jnp.prod(x, axis=1)


def first_is_five(params, x, mask):
    return jnp.where(x[:, 0] == 5, 1.0, -1.0)


def measure(**ids):
    return jaxsens.sensitivity(parity, (), X, FLIP, 2, key=jax.random.key(0), **ids)


def ragged(**options):
    buckets = into_buckets(SEQUENCES, (4,))
    return jaxsens.ragged_sensitivity(
        first_is_five, (), buckets, RESAMPLE, 2, key=jax.random.key(0), **options
    )


def bucket(**ids):
    return Bucket(tokens=np.ones((1, 4), np.int32), lengths=np.ones(1, np.int32), **ids)


#: (call, old keyword, new keyword, value)
KEYWORDS = {
    "sensitivity": (measure, "names", "example_ids", np.array([7, 3])),
    "ragged_sensitivity": (ragged, "places", "which_tokens", lambda tokens: tokens > 5),
    "Bucket": (bucket, "rows", "example_ids", np.array([3])),
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_an_old_keyword_warns_and_means_the_new_one(name):
    call, old, new, value = KEYWORDS[name]
    with pytest.warns(DeprecationWarning, match=rf"{name}\({old}=\) is now {name}\({new}=\)"):
        by_old = call(**{old: value})
    by_new = call(**{new: value})
    field = "example_ids" if name == "Bucket" else "totals"
    np.testing.assert_array_equal(getattr(by_old, field), getattr(by_new, field))


USES_AN_OLD_NAME = """
import numpy as np
from jaxsens.text import Bucket

ones = np.ones(1, int)
Bucket(rows=ones, tokens=ones, lengths=ones)
"""


def test_the_warning_names_the_users_own_line(tmp_path):
    """In a process without the tests' own wrappers, which stand between a user and jaxsens."""
    script = tmp_path / "script.py"
    script.write_text(USES_AN_OLD_NAME)
    run = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert f"{script}:6: DeprecationWarning" in run.stderr


@pytest.mark.parametrize("name", KEYWORDS)
def test_both_keywords_are_refused(name):
    call, old, new, value = KEYWORDS[name]
    with pytest.raises(TypeError, match=f"{name} takes {new}=, formerly {old}=; got both"):
        call(**{old: value, new: value})


def test_the_new_keyword_and_positional_arguments_do_not_warn():
    @renamed_keyword("old", "new")
    def function(new, other=2):
        """Says what it does."""
        return new, other

    assert function(1) == function(new=1) == (1, 2)
    assert (function.__name__, function.__doc__) == ("function", "Says what it does.")


def test_an_old_attribute_warns_and_reads_the_new_one():
    class Thing:
        new = 5
        old = renamed_attribute("old", "new")

    with pytest.warns(DeprecationWarning, match=r"Thing\.old is now Thing\.new"):
        assert Thing().old == 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        [only] = into_buckets(SEQUENCES, (4,))
        assert only.rows is only.example_ids
        found = jaxsens.explain(parity, (), X, FLIP)
        assert found.buckets == found.num_position_groups
