"""Every argument of every public function, given what it is not meant for.

A table of hostile values of every kind goes through every argument. Each call is either accepted,
where the table of what is accepted says so, or refused before anything is measured: a ValueError or
a TypeError of one line that names the argument, never an error from deeper down.
"""

import inspect
import math
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Ball, Bits, Gaussian, Patches, Perturbation, Tokens
from jaxsens.core import runtime
from jaxsens.measurement.arguments import checked_incremental
from jaxsens.measurement.ragged import ragged_sensitivity
from jaxsens.text.buckets import into_buckets

KEY = jax.random.key(0)
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
NOISE = Perturbation(Bits(), Gaussian(sigma=1.0))


def linear(params, x):
    return x @ params


def with_context(params, x, context):
    return x @ params + context.astype(x.dtype)[:, None]


def lookup(params, x, mask):
    return jnp.where(mask, params[x], 0.0).sum(axis=1)


class Unhashable:
    """A function as far as calling it goes."""

    __hash__ = None

    def __call__(self, *arguments):
        return arguments[-1]


def nothing(*arguments):
    """A function that gives no array."""


HOSTILE = {
    "none": None,
    "text": "1GB",
    "empty text": "",
    "auto": "auto",
    "all": "all",
    "random": "random",
    "bytes": b"x",
    "true": True,
    "numpy false": np.False_,
    "zero": 0,
    "one": 1,
    "negative": -1,
    "huge": 10**30,
    "half": 0.5,
    "nan": math.nan,
    "inf": math.inf,
    "complex": 1j,
    "numpy int": np.int64(2),
    "numpy float": np.float32(0.5),
    "jax float": jnp.float32(0.5),
    "empty list": [],
    "ragged list": [[1.0], [2.0, 3.0]],
    "list of nothing": [None, None, None],
    "empty dict": {},
    "dict": {"a": "b"},
    "set": {1, 2},
    "object": object(),
    "function": nothing,
    "unhashable": Unhashable(),
    "class": Patches,
    "module": math,
    "grid": Tokens(),
    "edit": Gaussian(sigma=1.0),
    "perturbation": NOISE,
    "masked array": np.ma.masked_array(X, X > 0),
    "objects": np.array([[object()] * 4] * 3),
    "texts": np.array([["True"] * 4] * 3),
    "dates": np.zeros((3, 4), "datetime64[s]"),
    "nans": np.full((3, 4), np.nan, np.float32),
    "halves": np.full((3, 4), 0.5, np.float32),
    "negative ids": np.array([0, -1, 2]),
    "beyond 32 bits": np.array([0, 2**32, 1]),
    "doubled": np.array([1, 1, 2]),
    "three ids": np.array([5, 0, 7]),
    "no rows": np.zeros((0, 4), np.float32),
    "one float": np.float32(1.0).reshape(()),
    "deep": np.zeros((3, 4, 1, 1, 1), np.float32),
    "float key": jnp.ones(2),
    "short key": np.ones(1, np.uint32),
    "long key": np.ones(3, np.uint32),
    "key": KEY,
    "old key": jax.random.PRNGKey(1),
    "keys": jax.random.split(KEY),
    "old keys": jax.random.split(jax.random.PRNGKey(1)),
    "shape": jax.ShapeDtypeStruct((3, 4), "float32"),
    "device": jax.devices()[0],
    "devices": jax.devices()[:2],
    "doubled devices": jax.devices()[:1] * 2,
}

WHOLE = {"one", "numpy int"}
REAL = {"zero", "one", "half", "numpy int", "numpy float", "jax float", "one float"}
POSITIVE = REAL - {"zero"}
SENSITIVITY = {
    "function": jaxsens.sensitivity,
    "given": {"apply_fn": linear, "params": jnp.ones((4, 2)), "x": X, "perturbation": NOISE,
              "num_samples": 2, "key": KEY},
    "accepted": {
        "x": {"halves"},
        "perturbation": {"perturbation"},
        "num_samples": WHOLE,
        "key": {"key", "old key"},
        "context": {"none"},
        "mask": {"none"},
        "positions": {"none", "all", "random"},
        "tolerance": POSITIVE | {"none", "huge"},
        "example_ids": {"none", "three ids"},
        "incremental": {"true", "numpy false", "auto"},
        "check": {"true", "numpy false"},
        "chunk_bytes": WHOLE | {"none", "huge"},
        "devices": {"none", "devices"},
        "progress": {"none", "function", "unhashable", "edit", "class", "perturbation"},
    },
}  # fmt: skip
WITH_CONTEXT = {
    "function": jaxsens.sensitivity,
    "given": SENSITIVITY["given"] | {"apply_fn": with_context, "context": np.zeros(3, np.float32)},
    "accepted": {"context": {"negative ids", "doubled", "three ids", "long key"}},
    "only": ["apply_fn", "context"],
}
SHARPNESS = {
    "function": jaxsens.sharpness,
    "given": SENSITIVITY["given"] | {"perturbation": Gaussian(sigma=1.0)},
    "accepted": {
        "x": {"halves", "nans"},
        "perturbation": {"edit"},
        "num_samples": WHOLE,
        "key": {"key", "old key"},
        "y": {"none", "long key"},
        "mask": {"none", "true"},
        "perturbed_apply_fn": {"none"},
        "perturbed_batch": WHOLE,
        "chunk_bytes": WHOLE | {"none", "huge"},
        "devices": {"none", "devices"},
        "progress": {"none", "function", "unhashable", "edit", "class", "perturbation"},
        "check": {"true", "numpy false"},
    },
}
OCCLUSION = {
    "function": jaxsens.occlusion,
    "given": {"apply_fn": linear, "params": jnp.ones((4, 2)), "x": X, "grid": Bits()},
    "accepted": {
        "x": {"halves"},
        "grid": {"grid"},
        "value": REAL | {"negative", "huge", "short key"},
    },
}
WORST_CASE = {
    "function": jaxsens.worst_case,
    "given": {"apply_fn": linear, "params": jnp.ones((4, 2)), "x": X,
              "perturbation": Perturbation(Bits(), Ball(1.0)), "key": KEY, "num_starts": 2,
              "num_steps": 2},
    "accepted": {
        "x": {"halves"},
        "key": {"key", "old key"},
        "num_starts": WHOLE,
        "num_steps": WHOLE,
        "positions": {"all", "set", "short key", "old key"},
        "context": {"none"},
        "mask": {"none"},
        "example_ids": {"none", "three ids"},
        "incremental": {"true", "numpy false", "auto"},
        "check": {"true", "numpy false"},
        "chunk_bytes": WHOLE | {"none", "huge"},
        "devices": {"none", "devices"},
        "progress": {"none", "function", "unhashable", "edit", "class", "perturbation"},
    },
}  # fmt: skip
EXPLAIN = {
    "function": jaxsens.explain,
    "given": {name: SENSITIVITY["given"][name] for name in ("apply_fn", "params", "x",
              "perturbation", "num_samples")},
    "accepted": {
        "x": {"halves", "nans", "no rows", "shape"},
        "perturbation": {"perturbation"},
        "num_samples": WHOLE,
        "context": {"none"},
    },
}  # fmt: skip
RAGGED = {
    "function": ragged_sensitivity,
    "given": {"apply_fn": lookup, "params": jnp.arange(9.0),
              "buckets": into_buckets([np.arange(1, 4, dtype=np.int32)], (4,)),
              "perturbation": Perturbation(Tokens(), jaxsens.Resample(9)), "num_samples": 2,
              "key": KEY},
    "accepted": {
        "num_samples": WHOLE | {"all"},
        "key": {"key", "old key"},
        "embed": {"none"},
        "which_tokens": {"none"},
        "positions": {"none", "all", "random"},
        "tolerance": POSITIVE | {"none", "huge"},
    },
}  # fmt: skip
BUCKETS = {
    "function": into_buckets,
    "given": {"sequences": [np.arange(1, 4, dtype=np.int32)], "lengths": (4,)},
    "accepted": {
        "sequences": {"empty list", "empty dict", "no rows"},
        "pad_id": WHOLE | {"zero"},
        "at_least": WHOLE | {"zero"},
    },
}
CUBES = np.ones((2, 3, 2, 4), np.float32)
ATTENTION = {
    "function": jaxsens.attention,
    "given": {"q": CUBES, "k": CUBES, "v": CUBES},
    "accepted": {"out": {"none"}, "visible": {"none"}, "causal": {"true"}},
}


def constructor(kind, given, accepted):
    return {"function": kind, "given": given, "accepted": accepted}


CALLS = {
    "sensitivity": SENSITIVITY,
    "sensitivity with context": WITH_CONTEXT,
    "sharpness": SHARPNESS,
    "occlusion": OCCLUSION,
    "worst_case": WORST_CASE,
    "explain": EXPLAIN,
    "ragged_sensitivity": RAGGED,
    "into_buckets": BUCKETS,
    "attention": ATTENTION,
    "Perturbation": constructor(
        Perturbation,
        {"grid": Bits(), "edit": Gaussian(sigma=1.0)},
        {"grid": {"grid"}, "edit": {"edit", "function", "perturbation"}},
    ),
    "Patches": constructor(Patches, {"size": 2}, {"size": WHOLE | {"zero", "negative", "huge"}}),
    "OverlappingPatches": constructor(
        jaxsens.OverlappingPatches, {"size": 2}, {"size": WHOLE | {"zero", "negative", "huge"}}
    ),
    "Gaussian sigma": constructor(Gaussian, {"sigma": 1.0}, {"sigma": REAL | {"huge"}}),
    "Gaussian variance": constructor(Gaussian, {"variance": 1.0}, {"variance": REAL | {"huge"}}),
    "ScatteredPixels": constructor(
        jaxsens.ScatteredPixels,
        {"count": 2, "noise": Gaussian(sigma=1.0)},
        {"count": WHOLE, "noise": {"edit", "function", "unhashable", "perturbation"}},
    ),
    "Resample": constructor(
        jaxsens.Resample,
        {"vocabulary": 9, "first": 0},
        {"vocabulary": WHOLE, "first": WHOLE | {"zero"}},
    ),
    "Replace": constructor(
        jaxsens.Replace,
        {"value": 0.0},
        {
            "value": REAL
            | {"negative", "huge", "halves", "negative ids", "beyond 32 bits", "doubled"}
            | {"three ids", "deep", "float key", "short key", "long key", "old key", "old keys"}
        },
    ),
    "Replace blur": constructor(
        jaxsens.Replace, {"value": "blur", "sigma": 1.0}, {"sigma": POSITIVE | {"none", "huge"}}
    )
    | {"only": ["sigma"]},
    "Flip": constructor(
        jaxsens.Flip,
        {"low": -3, "high": 3},
        {"low": REAL | {"negative", "huge"}, "high": REAL | {"negative", "huge"}},
    ),
    "Sphere": constructor(jaxsens.Sphere, {"radius": 1.0}, {"radius": REAL | {"huge"}}),
    "Ball": constructor(
        Ball,
        {"radius": 1.0, "norm": "l2"},
        {"radius": POSITIVE | {"huge"}},
    ),
    "Relative": constructor(jaxsens.Relative, {"scale": 1.0}, {"scale": REAL | {"huge"}}),
    "Metric": constructor(
        jaxsens.Metric,
        {"name": "change", "change": nothing, "lower": -2.0, "upper": 2.0},
        {
            "name": {"text", "empty text", "auto", "all", "random"},
            "change": {"function", "class", "edit", "perturbation"},
            "lower": (REAL - {"numpy int"}) | {"negative"},
            "upper": REAL | {"negative", "inf", "huge"},
        },
    ),
}


def arguments(call):
    """The names of what it takes; `Gaussian` takes one of its two."""
    given, function = call["given"], call["function"]
    if "only" in call or inspect.isclass(function):
        return call.get("only", list(given))
    every = inspect.signature(function).parameters.values()
    return [each.name for each in every if each.kind is not each.VAR_KEYWORD]


CASES = [
    pytest.param(call, argument, id=f"{name}({argument})")
    for name, call in CALLS.items()
    for argument in arguments(call)
]


MEETING = {
    "params": ["apply_fn", "model"],
    "x": ["apply_fn", "example"],
    "context": ["apply_fn"],
    "lengths": ["bucket"],
}


class Accepted(Exception):
    """The checks are over, and measuring would begin."""


@pytest.fixture
def as_users_have_it(monkeypatch, types_unchecked):
    """No types checked at run time, and no measurement: the call ends where it would begin."""

    def stop(*arguments, **options):
        raise Accepted

    monkeypatch.setattr(runtime, "place", stop)
    monkeypatch.setattr(sys.modules["jaxsens.measurement.explanation"], "count_costs", stop)


def refusal(call, **changes):
    """What the call raises for these arguments; None if it accepts them."""
    try:
        call["function"](**(call["given"] | changes))
    except Accepted:
        return None
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(("call", "argument"), CASES)
def test_a_hostile_value_is_accepted_where_it_means_something_or_refused_in_one_line(
    call, argument, as_users_have_it
):
    assert refusal(call) is None
    accepted, function = set(), call["function"]
    for kind, value in HOSTILE.items():
        error = refusal(call, **{argument: value})
        if error is None:
            accepted.add(kind)
            continue
        said = str(error)
        assert type(error) in (ValueError, TypeError), f"{kind}: {error!r}"
        assert "\n" not in said, f"{kind}: {said}"
        names = [function.__name__ if inspect.isclass(function) else argument]
        # What does not fit the others is found where they meet.
        names += MEETING.get(argument, [])
        assert re.search(rf"\b({'|'.join(names)})\b", said, re.IGNORECASE), f"{kind}: {said}"
    assert accepted == call["accepted"].get(argument, set())


# What users write themselves: models, edits, grids and metrics that JAX cannot trace.


def takes_numpy(params, x):
    return np.asarray(x) @ np.asarray(params)


def branches(params, x):
    return x @ params if x.sum() > 0 else x @ -params


def counts(params, x):
    return x[:, : int(x[0, 0])] @ params


def selects(params, x):
    return x[x > 0] @ params


def raises(params, x):
    raise RuntimeError("first line\nsecond line")


def wrong_shapes(params, x):
    return x @ x + params


def own(message, **changes):
    return pytest.param(changes, message, id=message[:50])


class OwnReplacements:
    """An edit with finitely many replacements, as far as it says."""

    def __init__(self, num, replacement):
        self.num, self.new = num, replacement

    def __call__(self, key, window):
        return window

    def num_replacements(self, window_shape):
        return self.num

    def replacement(self, index, window):
        return self.new(window)


class OwnGrid(Tokens):
    def __init__(self, layout=(4,), window=(1,)):
        self.given = layout, window

    def layout(self, shape):
        return self.given[0]

    def window_shape(self, shape):
        return self.given[1]


def edited_by(edit):
    return Perturbation(Bits(), edit)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        own("apply_fn.* use jax.numpy in place of numpy", apply_fn=takes_numpy),
        own("apply_fn.* use jax.numpy .*jax.lax.cond in place of if", apply_fn=branches),
        own("apply_fn.*TracerIntegerConversionError|use jax.numpy", apply_fn=counts),
        own("apply_fn.*NonConcreteBooleanIndexError.*use jax.numpy", apply_fn=selects),
        own(r"apply_fn\(params=.*\) fails: RuntimeError: first line$", apply_fn=raises),
        own(r"apply_fn\(params=float32\[4,2\], x=float32\[2,4\]\) fails: TypeError",
            apply_fn=wrong_shapes),
        own("missing 1 required .*'context'; if it takes more than .* as context=",
            apply_fn=with_context),
        own("takes 2 positional arguments but 3 were given; .* leave context= out",
            context=np.zeros(3, np.float32)),
        own("apply_fn must be hashable", apply_fn=Unhashable()),
        own("perturbation.edit .* use jax.numpy in place of numpy",
            perturbation=edited_by(lambda key, window: np.sort(window))),
        own("perturbation.edit .*jax.lax.cond in place of if",
            perturbation=edited_by(lambda key, window: window if window[0] > 0 else -window)),
        own("perturbation.edit .* fails: TypeError: .* 1 positional argument",
            perturbation=edited_by(lambda window: window)),
        own("perturbation.edit .* must return a window of shape",
            perturbation=edited_by(lambda key, window: window[None])),
        own("perturbation.edit .* use jax.numpy in place of numpy", num_samples="all",
            perturbation=edited_by(OwnReplacements(2, np.sort))),
        own("perturbation.edit .* whole number of replacements; got 2.5", num_samples="all",
            perturbation=edited_by(OwnReplacements(2.5, jnp.negative))),
        own("perturbation.edit .* fails: AttributeError",
            perturbation=edited_by(nothing)),
        own("perturbation.grid .* fails for examples of shape", perturbation=Perturbation(
            OwnGrid(layout=None), Gaussian(sigma=1.0))),
        own("perturbation.grid .* do not fit into examples", perturbation=Perturbation(
            OwnGrid(window=(9,)), Gaussian(sigma=1.0))),
        own("perturbation.grid .* do not fit into examples", perturbation=Perturbation(
            OwnGrid(window=(1, 1)), Gaussian(sigma=1.0))),
        own("metric 'text'.* must be|metric must be jaxsens.label_flip", metric="label_flip"),
        own("metric 'changed'.*must give a real number", metric=jaxsens.Metric(
            "changed", lambda clean, perturbed: jax.lax.complex(clean[0], perturbed[0]))),
        own("metric 'changed'.*must give one number", metric=jaxsens.Metric(
            "changed", lambda clean, perturbed: clean - perturbed)),
        own("metric 'changed'.*use jax.numpy", metric=jaxsens.Metric(
            "changed", lambda clean, perturbed: np.abs(np.asarray(clean)).sum())),
        own("metric 'nothing'.*fails", metric=nothing),
        own("metric '<lambda>'.*fails: TypeError", metric=lambda clean: clean),
    ],
)  # fmt: skip
def test_what_users_write_fails_in_one_line_that_says_what_to_write(
    changes, message, as_users_have_it
):
    error = refusal(SENSITIVITY, **changes)
    assert type(error) in (ValueError, TypeError), repr(error)
    assert re.search(message, str(error)), error
    assert "\n" not in str(error)


@pytest.mark.parametrize("argument", ["params", "x", "key"])
@pytest.mark.parametrize("call", [SENSITIVITY, SHARPNESS], ids=["sensitivity", "sharpness"])
def test_a_measurement_inside_jit_is_refused(call, argument, as_users_have_it):
    given = call["given"][argument]
    with pytest.raises(ValueError, match=rf"^{argument} .* outside of jax.jit") as error:
        jax.jit(lambda value: call["function"](**(call["given"] | {argument: value})))(given)
    assert "\n" not in str(error.value)


def test_numpy_bools_mean_what_they_say():
    for given in (True, False, np.True_, np.False_):
        assert checked_incremental(given) is bool(given)


def test_a_missing_or_swapped_perturbation_is_named(as_users_have_it):
    without = {k: v for k, v in SENSITIVITY["given"].items() if k != "perturbation"}
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'perturbation'"):
        jaxsens.sensitivity(**without)
    with pytest.raises(ValueError, match=r"grid first, then the edit; .*: exchange them"):
        Perturbation(Gaussian(sigma=1.0), Bits())
    for alone, whole in (
        (Gaussian(sigma=1.0), r"Perturbation\(Tokens\(\), Gaussian\(sigma=1, variance=1\)\)"),
        (Patches(4), r"Perturbation\(Patches\(size=4\), Gaussian\(sigma=1.0\)\)"),
    ):
        with pytest.raises(ValueError, match=f"perturbation must be .* such as {whole}; got"):
            jaxsens.sensitivity(**without, perturbation=alone)
