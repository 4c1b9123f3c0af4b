"""Files of estimates, damaged in every way: refused in one line, or the same numbers."""

import base64
import copy
import json
import math
import tracemalloc
import zlib

import numpy as np
import pytest

from jaxsens import SensitivityEstimate, SharpnessEstimate
from jaxsens.measurement.estimate import Provenance
from jaxsens.measurement.sharpness_estimate import SharpnessProvenance

RNG = np.random.default_rng(0)
MADE = {"seed": (0, 7), "precision": "highest", "device": "cpu", "num_devices": 1, "seconds": 0.25,
        "num_passes": 12}  # fmt: skip


def sensitivity(**changes):
    made = {"metric": "label_flip", "perturbation": "some", "num_samples": 5, "exact": False,
            "positions": "all", "tolerance": None, "exhaustive_passes": 56, **MADE}  # fmt: skip
    totals = RNG.integers(0, 6, (7, 3)).astype(float)
    return SensitivityEstimate(totals, np.full((7, 3), 5), (0.0, 1.0), Provenance(**made | changes))


def sharpness():
    made = {"perturbation": "some", "num_weights": 9, "perturbed_apply_fn": None, **MADE}
    tables = {name: RNG.random((7, 3)).astype(np.float32) for name in ("l1", "squared", "loss")}
    flips = RNG.integers(0, 2, (7, 3)).astype(np.float32)
    return SharpnessEstimate.of({"flips": flips, **tables}, SharpnessProvenance(**made))


def tables_of(estimate):
    if isinstance(estimate, SensitivityEstimate):
        return [estimate.totals, estimate.counts]
    return [change.per_example_draw for change in estimate.changes.values()]


def is_refused(kind, text, expected):
    """Whether a damaged text is refused, in one line; else it must have the same numbers."""
    try:
        again = kind.from_json(text)
    except Exception as error:
        said = error
    else:
        pairs = zip(tables_of(again), tables_of(expected), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs), text[:2000]
        return False
    assert type(said) is ValueError, repr(said)
    assert str(said).startswith("not an estimate of jaxsens: ")
    assert "\n" not in str(said)
    return True


ESTIMATES = pytest.mark.parametrize("estimate", [sensitivity(), sharpness()], ids=type)


def paths(record, at=()):
    """Every place in a JSON value."""
    yield at
    inner = record.items() if isinstance(record, dict) else ()
    inner = enumerate(record) if isinstance(record, list) else inner
    for key, value in inner:
        yield from paths(value, (*at, key))


def changed(record, path, change):
    """A copy with `change(parent, key)` done at this place."""
    record = copy.deepcopy(record)
    parent = record
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return json.dumps(record)


HOSTILE = [None, True, -1, 10**30, 0.5, -1e300, math.nan, "", "x", "nan", [], [[0]], [7, -3],
           {"a": 1}]  # fmt: skip


@ESTIMATES
def test_every_part_of_a_file_missing_or_replaced(estimate):
    record = json.loads(estimate.to_json())
    for path in list(paths(record))[1:]:
        if path[0] == "summary" and path[-1] not in ("summary", "mean", "num_examples"):
            continue
        text = changed(record, path, lambda parent, key: parent.pop(key))
        refused = is_refused(type(estimate), text, estimate)
        optional = (
            *("incremental", "merged_seeds", "perturbed_batch", "self_check"),
            *("layout", "near_ties", "population", "population_size"),
        )
        assert refused is (path[-1] not in optional and "seed" not in path[:-1])
        for value in HOSTILE:
            is_refused(
                type(estimate),
                changed(record, path, lambda parent, key, value=value: parent.update({key: value})
                        if isinstance(parent, dict) else parent.__setitem__(key, value)),
                estimate,
            )  # fmt: skip


@ESTIMATES
def test_files_cut_short_or_with_other_characters(estimate, types_unchecked):
    text, rng = estimate.to_json(), np.random.default_rng(1)
    for end in range(0, len(text), 7):
        assert is_refused(type(estimate), text[:end], estimate)
    for place in rng.integers(0, len(text), 400):
        other = chr(rng.integers(32, 127))
        is_refused(type(estimate), text[:place] + other + text[place + 1 :], estimate)
    for strange in (b"\xff\xfe", "[" * 100_000, "runs/vision/estimate.json", "5", "[]", "{}", None,
                    "1" * 5000, 5, object(), text + text):  # fmt: skip
        assert is_refused(type(estimate), strange, estimate)


@ESTIMATES
def test_a_file_of_another_kind_is_refused(estimate):
    other = SharpnessEstimate if isinstance(estimate, SensitivityEstimate) else SensitivityEstimate
    assert is_refused(other, estimate.to_json(), estimate)


def test_tables_that_are_read_as_other_numbers_are_refused():
    """Counts as totals, another dtype or order, another file's table: 9.6e16 was an estimate."""
    estimate, other = sensitivity(), sensitivity()
    record, strange = json.loads(estimate.to_json()), json.loads(other.to_json())
    totals, counts = record["totals"], record["counts"]
    for changes in (
        {"totals": counts, "counts": totals},
        {"totals": counts},
        {"totals": totals | {"dtype": "<i8"}},
        {"totals": totals | {"dtype": ">f8"}},
        {"totals": totals | {"dtype": "<f4", "shape": [14, 3]}},
        {"totals": totals | {"dtype": "|O"}},
        {"totals": totals | {"shape": [3, 7]}},
        {"counts": counts | {"dtype": "<u8"}},
        {"totals": strange["totals"]},
        {"bounds": ["0.0", "0.1"]},
        {"bounds": ["1.0", "0.0"]},
        {"bounds": ["nan", "nan"]},
    ):
        assert is_refused(SensitivityEstimate, json.dumps(record | changes), estimate), changes


def test_a_table_that_unpacks_to_more_than_its_shape_takes_no_memory():
    record = json.loads(sensitivity().to_json())
    packed = {name: base64.b64encode(zlib.compress(bytes(size))).decode()
              for name, size in (("bomb", 1 << 25), ("small", 168))}  # fmt: skip
    bomb = record["totals"] | {"zlib_base64": packed["bomb"]}
    claim = record["totals"] | {"zlib_base64": packed["small"], "shape": [10**9, 10**9]}
    for table, message in ((bomb, "needs 168 bytes"), (claim, "does not fit into")):
        text = json.dumps(record | {"totals": table})
        tracemalloc.start()
        with pytest.raises(ValueError, match=f"not an estimate of jaxsens: .*{message}"):
            SensitivityEstimate.from_json(text)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
        tracemalloc.stop()


def test_a_merged_estimate_keeps_all_seeds_and_old_files_have_one():
    a, b, c = (sensitivity(seed=(0, seed)) for seed in (1, 2, 3))
    merged = a.merge(b).merge(c.merge(a)).merge(b)
    assert merged.provenance.seed == (0, 1)
    assert merged.provenance.merged_seeds == ((0, 2), (0, 3))
    assert SensitivityEstimate.from_json(merged.to_json()).provenance == merged.provenance
    assert a.merge(a).provenance.merged_seeds == ()
    record = json.loads(a.to_json())
    del record["provenance"]["merged_seeds"]
    assert SensitivityEstimate.from_json(json.dumps(record)).provenance == a.provenance


@ESTIMATES
@pytest.mark.parametrize("other", [None, 5, "text", {}, sensitivity(), sharpness()], ids=type)
def test_only_estimates_of_one_kind_merge(estimate, other, types_unchecked):
    if type(estimate) is type(other):
        return
    with pytest.raises(ValueError, match="merge takes another"):
        estimate.merge(other)
