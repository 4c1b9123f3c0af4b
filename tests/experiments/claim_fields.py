"""What the fields of a claim must hold, for the tests of all experiments."""

import numbers


def check_claims(claims):
    """Fails unless every claim (as JSON) has its numbers, and its interval if it speaks of one."""
    assert claims
    for claim in claims:
        statement, values, interval = claim["statement"], claim["values"], claim["interval"]
        assert values, statement
        assert claim["decided_by"], statement
        # One interval decides, or several do: then they are among the values.
        if "interval" in claim["statement"] + claim["measured"]:
            assert interval is not None or any("interval" in name for name in values), statement
        if interval is not None:
            low, high = interval
            value = values[claim["decided_by"]]
            if isinstance(value, numbers.Real):
                assert low is None or low <= value, statement
                assert high is None or value <= high, statement
            assert claim["num_examples"] or claim["num_seeds"], statement
