"""Bars: shown on a terminal with rate and running figure, silent elsewhere."""

import io
import sys

from jaxsens.reporting.progress import Bar


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
