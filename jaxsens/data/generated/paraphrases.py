"""Generated pairs of sentences: does the second say the same as the first?

Made by a small grammar, and called "generated" wherever they are used: nothing measured on them
says anything about natural language. A sentence tells who did what to whom, and may tell how many,
of what kind, how often, when and where. The second sentence of a pair tells it anew: some words
give way to a synonym, active and passive may change, adverbials move. With label 1 nothing else
happens. With label 0 one thing is no longer true: a word gave way to its contrast ("hired" to
"fired", "two" to "three", "always" to "never"), or the two parties changed places.

Neither length nor overlap tells the label. A synonym and a contrast each replace one word by one
word, and the number of replaced words has the same distribution for both labels; voice and order
are drawn without a look at the label. A model must know which words mean the same, and for the
parties' places it must read voice and order together. The one help is that contrasts are rarer than
what they contrast with, so a linear model of the words of both sentences gets about 77 % right, of
those of the second alone about 60 %. Without that help small models learn the 4,000 pairs by heart
and nothing else.

All randomness comes from the raw 64-bit stream of PCG64, which NumPy promises to keep (NEP 19).
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from jaxsens.data.text.texts import Texts

_SEED = 0
_SIZES = {"validation": 1_000, "train": 4_000}
#: A sentence has at least this many words with a synonym: both parties and the deed.
_MAX_REPLACED = 3
#: One label-0 pair in this many has the parties exchanged instead of a word changed.
_EXCHANGE_EVERY = 8
#: One word in this many of a first sentence is from the second side of its line.
_SIDE_TWO_EVERY = 6

#: A line has two sides: words that mean the same, and words that mean the contrast of these.
_LEXICON: dict[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = {
    "person": (
        (("doctor", "physician"), ("patient", "invalid")),
        (("lawyer", "attorney"), ("judge", "magistrate")),
        (("manager", "supervisor"), ("worker", "labourer")),
        (("burglar", "robber"), ("officer", "constable")),
    ),
    "trait": (
        (("rich", "wealthy"), ("poor", "needy")),
        (("happy", "cheerful"), ("sad", "gloomy")),
        (("young", "youthful"), ("old", "elderly")),
    ),
    "deed": (
        (("hired", "employed"), ("fired", "dismissed")),
        (("helped", "assisted"), ("harmed", "injured")),
        (("praised", "commended"), ("blamed", "criticised")),
        (("liked", "adored"), ("hated", "detested")),
    ),
    "number": ((("two", "2"), ("three", "3")),),
    "frequency": ((("often", "frequently"), ("rarely", "seldom")), (("always",), ("never",))),
    "time": ((("at dawn", "at sunrise"), ("at dusk", "at sunset")),),
    "place": ((("in the forest", "in the woods"), ("in the desert", "in the wasteland")),),
}

T = TypeVar("T")


class _Word(NamedTuple):
    """A word as its place in the lexicon: two words mean the same if they differ in `form` only."""

    kind: str
    line: int
    side: int
    form: int

    @property
    def forms(self) -> tuple[str, ...]:
        return _LEXICON[self.kind][self.line][self.side]

    def __str__(self) -> str:
        return _LEXICON[self.kind][self.line][self.side][self.form]


#: What is said, without voice and order: from a role like "agent.number" to its word.
_Story = dict[str, _Word]


#: A throw of n returns one of 0..n-1, each as likely.
_Dice = Callable[[int], int]


def make(split: str) -> Texts:
    """Returns the split's pairs, label 1 for "the same" and 0 for "changed", each equally often.

    Args:
      split: "train", 4,000 pairs, or "validation", 1,000 pairs. No two first sentences in the two
        splits together have the same meaning.

    Example:
      >>> texts = make("train")
      >>> for i in range(2):
      ...     print(f"{texts.labels[i]}: {texts.first[i]} | {texts.second[i]}")
      0: at sunrise the rich doctor rarely liked the supervisor |
      at dawn the rich doctor was rarely liked by the manager
      1: the supervisor praised the young patient |
      the young invalid was praised by the supervisor
    """
    pairs = _pairs()[split]
    labels = np.arange(len(pairs), dtype=np.int32) % 2
    first, second = zip(*pairs, strict=True)
    return Texts(tuple(first), tuple(second), labels)


@functools.cache
def _pairs() -> dict[str, tuple[tuple[str, str], ...]]:
    dice = _dice(_SEED)
    told = set()
    splits = {}
    for split, size in _SIZES.items():
        pairs: list[tuple[str, str]] = []
        while len(pairs) < size:
            story = _invent(dice)
            meaning = frozenset((role, word[:3]) for role, word in story.items())
            if meaning in told:
                continue
            told.add(meaning)
            retold = _retell(dice, story, same=len(pairs) % 2 == 1)
            pairs.append((_sentence(dice, story), _sentence(dice, retold)))
        splits[split] = tuple(pairs)
    return splits


def _dice(seed: int) -> _Dice:
    draw = np.random.PCG64(seed).random_raw
    # The remainder favours small numbers by less than n / 2^64. A lambda, for the import hook of
    # the tests checks every call of a function, which took longer than all the rest.
    return lambda n: int(draw()) % n


def _sample(dice: _Dice, items: Sequence[T], k: int) -> list[T]:
    pool = list(items)
    return [pool.pop(dice(len(pool))) for _ in range(k)]


def _invent(dice: _Dice) -> _Story:
    # Parties from different lines, so that exchanging them, or one's contrast, changes the story.
    agent, patient = _sample(dice, range(len(_LEXICON["person"])), 2)
    story = {
        "agent.person": _word(dice, "person", agent),
        "patient.person": _word(dice, "person", patient),
        "deed": _any_word(dice, "deed"),
    }
    extras = ("agent.number", "patient.number", "agent.trait", "patient.trait")
    for role in (*extras, "frequency", "time", "place"):
        if dice(3) == 0:
            story[role] = _any_word(dice, role.split(".")[-1])
    return story


def _any_word(dice: _Dice, kind: str) -> _Word:
    return _word(dice, kind, dice(len(_LEXICON[kind])))


def _word(dice: _Dice, kind: str, line: int) -> _Word:
    side = int(dice(_SIDE_TWO_EVERY) == 0)
    return _Word(kind, line, side, dice(len(_LEXICON[kind][line][side])))


def _retell(dice: _Dice, story: _Story, *, same: bool) -> _Story:
    retold = dict(story)
    num_replaced = 1 + dice(_MAX_REPLACED)
    exchange = dice(_EXCHANGE_EVERY) == 0
    if not same and not exchange:
        role = _sample(dice, list(story), 1)[0]
        retold[role] = _contrast(dice, story[role])
        num_replaced -= 1
    others = [r for r, word in story.items() if retold[r] is word and len(word.forms) > 1]
    for role in _sample(dice, others, min(num_replaced, len(others))):
        retold[role] = story[role]._replace(form=1 - story[role].form)
    if not same and exchange:
        return {_other_party(role): word for role, word in retold.items()}
    return retold


def _contrast(dice: _Dice, word: _Word) -> _Word:
    opposite = word._replace(side=1 - word.side, form=0)
    return opposite._replace(form=dice(len(opposite.forms)))


def _other_party(role: str) -> str:
    party, dot, rest = role.partition(".")
    return {"agent": "patient", "patient": "agent"}.get(party, party) + dot + rest


def _sentence(dice: _Dice, story: _Story) -> str:
    agent, patient = (_party(story, name) for name in ("agent", "patient"))
    frequency = [str(story["frequency"])] if "frequency" in story else []
    deed = str(story["deed"])
    if dice(2):
        clause = [agent, *frequency, deed, patient]
    else:
        was = "were" if "patient.number" in story else "was"
        clause = [patient, was, *frequency, deed, "by", agent]
    for role in _sample(dice, ("time", "place"), 2):
        if role in story:
            adverbial = [str(story[role])]
            clause = [*adverbial, *clause] if dice(2) else [*clause, *adverbial]
    return " ".join(clause)


def _party(story: _Story, name: str) -> str:
    roles = [f"{name}.{part}" for part in ("number", "trait", "person")]
    words = [str(story[role]) for role in roles if role in story]
    return f"{' '.join(words)}s" if roles[0] in story else f"the {' '.join(words)}"
