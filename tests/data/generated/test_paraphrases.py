"""The generated pairs: every label is true by the grammar, and no shortcut tells it."""

import collections

import numpy as np
import pytest

from jaxsens.data.generated import paraphrases
from jaxsens.data.text import TEXT_SPLITS, load_text, text_spec

_ADVERBIALS = ("time", "place")


#: From a word to its (kind, line, side); words of the grammar like "by" are not in it.
_MEANINGS = {
    form.split()[-1]: (kind, line, side)
    for kind, lines in paraphrases._LEXICON.items()
    for line, sides in enumerate(lines)
    for side, forms in enumerate(sides)
    for form in forms
}


def meaning(sentence):
    """Reads a sentence back, by other means than it was written: who, to whom, and all the rest."""
    tokens = [token for token in sentence.split() if token not in ("at", "in", "the")]
    words = [(t, _MEANINGS.get(t) or _MEANINGS.get(t.removesuffix("s"))) for t in tokens]
    rest = {found for _, found in words if found and found[0] in (*_ADVERBIALS, "frequency")}
    words = [(t, f) for t, f in words if not f or f[0] not in (*_ADVERBIALS, "frequency")]
    at = next(i for i, (_, found) in enumerate(words) if found and found[0] == "deed")
    before = {found for _, found in words[:at] if found}
    after = {found for _, found in words[at + 1 :] if found}
    passive = any(token in ("was", "were") for token, _ in words[:at])
    agent, patient = (after, before) if passive else (before, after)
    return frozenset(agent), words[at][1], frozenset(patient), frozenset(rest)


@pytest.fixture(scope="module", params=TEXT_SPLITS)
def texts(request):
    return load_text("paraphrases", request.param)


def test_the_label_says_whether_both_mean_the_same(texts):
    same = [meaning(a) == meaning(b) for a, b in zip(texts.first, texts.second or (), strict=True)]
    np.testing.assert_array_equal(texts.labels, same)


def test_label_0_has_exactly_one_change_or_exchanged_parties(texts):
    kinds = collections.Counter()
    for a, b, label in zip(texts.first, texts.second, texts.labels, strict=True):
        if label:
            continue
        (agent, deed, patient, rest), other = meaning(a), meaning(b)
        if other == (patient, deed, agent, rest):
            kinds["exchange"] += 1
            continue
        changed = [(agent, patient, rest, {deed}), (other[0], other[2], other[3], {other[1]})]
        gone = set().union(*(x - y for x, y in zip(*changed, strict=True)))
        come = set().union(*(y - x for x, y in zip(*changed, strict=True)))
        assert len(gone) == len(come) == 1, (a, b)
        (kind, line, side), new = gone.pop(), come.pop()
        assert new == (kind, line, 1 - side)
        kinds[kind] += 1
    assert kinds.keys() == {"exchange", *paraphrases._LEXICON}
    assert 1 / 12 < kinds["exchange"] / (len(texts) / 2) < 1 / 5


def test_sizes_classes_and_lengths(texts):
    sizes = {text_spec("paraphrases").num_examples(split) for split in TEXT_SPLITS}
    assert len(texts) in sizes
    assert np.bincount(texts.labels).tolist() == [len(texts) // 2] * 2
    lengths = [len(text.split()) for text in texts.strings()]
    assert (min(lengths), max(lengths)) == (5, 15)
    assert 50 < len({word for text in texts.strings() for word in text.split()}) < 150


def test_the_splits_share_no_meaning_of_a_first_sentence():
    train, validation = (load_text("paraphrases", split) for split in TEXT_SPLITS)
    told = [meaning(text) for text in (*train.first, *validation.first)]
    assert len(set(told)) == len(told)


def test_every_run_makes_the_same_pairs(monkeypatch):
    made = paraphrases._pairs()["validation"]
    monkeypatch.setattr(paraphrases, "_SIZES", {"validation": 100})
    assert paraphrases._pairs.__wrapped__()["validation"] == made[:100]


def best_threshold(score, labels):
    cuts = [(score >= cut) == labels for cut in np.unique(score)]
    return max(max(right.mean(), 1 - right.mean()) for right in cuts)


def test_length_and_overlap_do_not_tell_the_label(texts):
    pairs = [(a.split(), b.split()) for a, b in zip(texts.first, texts.second, strict=True)]
    common = [sum((collections.Counter(a) & collections.Counter(b)).values()) for a, b in pairs]
    scores = {
        "length of the second": [len(b) for _, b in pairs],
        "difference of lengths": [len(b) - len(a) for a, b in pairs],
        "common words": common,
        "share of common words": [
            n / max(len(a), len(b)) for n, (a, b) in zip(common, pairs, strict=True)
        ],
    }
    # The best of some ten thresholds by luck alone: 0.5 and a few standard errors.
    limit = 0.5 + 3 * 0.5 / np.sqrt(len(texts))
    for name, score in scores.items():
        assert best_threshold(np.array(score), texts.labels) < limit, name


def test_a_linear_model_of_the_words_does_better_than_chance_but_not_well():
    train, validation = (load_text("paraphrases", split) for split in TEXT_SPLITS)
    words = sorted({word for text in train.strings() for word in text.split()})
    column = {word: i for i, word in enumerate(words)}

    def features(texts):
        counts = np.ones((len(texts), 2 * len(words) + 1))
        for row, pair in zip(counts, zip(texts.first, texts.second, strict=True), strict=True):
            row[:-1] = 0
            for side, text in enumerate(pair):
                for word in text.split():
                    row[side * len(words) + column[word]] += 1
        return counts

    weights = np.linalg.lstsq(features(train), 2.0 * train.labels - 1, rcond=None)[0]
    right = (features(validation) @ weights > 0) == validation.labels
    assert 0.7 < right.mean() < 0.85
