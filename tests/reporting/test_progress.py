"""Bars: shown on a terminal with rate, running figure and what comes; silent elsewhere."""

import io
import sys

import pytest

from jaxsens.reporting import progress
from jaxsens.reporting.progress import Bar, Steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_silent_when_not_on_a_terminal(capsys):
    with Bar("training", "epochs", 3) as bar:
        bar.update(2, 3, "loss 0.1")
    assert capsys.readouterr() == ("", "")


def test_a_bar_shows_label_share_and_running_estimate(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Bar("ViT: measuring", "examples") as bar:
        bar.measured(500, 1000, 0.03125)
        bar.measured(1000, 1000, 0.0321)
    shown = terminal.getvalue()
    assert "ViT: measuring" in shown
    assert "1000/1000" in shown
    assert "sensitivity 0.0321" in shown


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_steps_tell_how_long_the_rest_takes():
    clock = Clock()
    steps = Steps(["CNN", "ViT", "MLP", "LSTM"], clock)
    assert steps.seconds_left() is None
    steps.moved(0.0)
    clock.now += 30
    steps.moved(0.5)
    assert steps.seconds_left() == 3.5 * 60
    clock.now += 30
    steps.begin()
    assert steps.seconds_left() == 3 * 60
    assert steps.text().startswith(
        "done: CNN; now: ViT; then: MLP, LSTM; all ready in about 3 min, at "
    )


def test_a_step_that_lasts_longer_than_expected_is_taken_to_go_on_so():
    clock = Clock()
    steps = Steps(["CNN", "ViT"], clock)
    clock.now += 10
    steps.begin()
    clock.now += 5
    assert steps.seconds_left() == 15  # nothing is known of the ViT: five seconds more than the CNN
    clock.now += 25
    steps.moved(0.25)
    assert steps.seconds_left() == 0.75 * 32
    steps.moved(1.0)
    assert steps.seconds_left() == 0


@pytest.mark.parametrize("width", [120, 80, 60])
def test_a_line_of_steps_says_when_all_is_ready_however_wide_the_terminal_is(width):
    clock = Clock()
    steps = Steps([f"MLP number {i}" for i in range(9)], clock)
    clock.now += 100
    for _ in range(4):
        steps.begin()
    text = steps.text(width)
    assert len(text) <= width
    assert "now: MLP number 4; " in text
    assert "all ready in about 8 min, at " in text
    if width == 60:
        text = steps.text(20)
        assert (len(text), text[-1]) == (20, "…")


def test_a_line_of_steps_counts_what_is_done_before_what_comes():
    steps = Steps([f"model {i}" for i in range(5)], Clock())
    steps.begin()
    steps.begin()
    assert steps.text() == "done: model 0, model 1; now: model 2; then: model 3, model 4"
    assert steps.text(58) == "done: 2; now: model 2; then: model 3, model 4"
    assert steps.text(30) == "done: 2; now: model 2; then: 2"


def test_what_an_earlier_session_did_tells_nothing_of_the_rest():
    clock = Clock()
    steps = Steps(["CNN", "ViT", "MLP"], clock)
    clock.now += 0.5  # the CNN was there already
    steps.begin()
    assert steps.seconds_left() is None
    steps.moved(0.75)  # and three quarters of the ViT
    assert steps.seconds_left() is None
    clock.now += 10
    steps.moved(1.0)
    assert steps.seconds_left() == 40
    assert "done: CNN; now: ViT; then: MLP; all ready in about 40 s, at " in steps.text()


def test_a_bar_over_all_models_shows_what_is_done_and_what_comes(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    taken = []
    for name in progress.steps(["CNN", "ViT"], lambda name: f"model {name}"):
        progress.step_moved(1, 2)
        taken.append([name, *progress.steps("ab")])  # steps inside a step have no bar
    assert taken == [["CNN", "a", "b"], ["ViT", "a", "b"]]
    shown = terminal.getvalue()
    assert "now: model CNN; then: model ViT" in shown
    assert "done: model CNN; now: model ViT" in shown
    assert "now: a" not in shown
    progress.step_moved(1, 2)  # no steps go on: nothing happens


def test_a_run_that_fails_leaves_no_steps_behind():
    def fails():
        for _ in progress.steps(["CNN", "ViT"]):
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert [*progress.steps(["MLP"])] == ["MLP"]


def test_steps_are_silent_when_not_on_a_terminal(capsys):
    assert [*progress.steps([])] == []
    for _ in progress.steps(["CNN", "ViT"]):
        progress.step_moved(1, 2)
    assert capsys.readouterr() == ("", "")
