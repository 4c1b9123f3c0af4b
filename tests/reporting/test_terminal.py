"""Lines of a terminal: they fit its width, and are drawn again while nothing moves them."""

import io
import sys
import threading

import pytest

from jaxsens.reporting import terminal
from jaxsens.reporting.terminal import TerminalLine, bar_line, broken


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", range(20, 121, 7))
@pytest.mark.parametrize("unit", ["", " examples"])
def test_a_line_is_as_wide_as_the_terminal_at_most(width, unit):
    said = {"prefix": "MLP-LeakyReLU: measuring", "unit": unit, "postfix": "sensitivity 0.0312"}
    for done in (0, 1, 700, 1437):
        assert len(bar_line(done, 1437, 70.0, ncols=width, **said)) <= width


def test_the_running_figure_is_left_out_last():
    said = {"prefix": "CNN: measuring", "postfix": "sensitivity 0.0312"}
    line = bar_line(10, 40, 5.0, ncols=46, **said)
    assert "sensitivity 0.0312" in line
    assert "left" not in line
    assert "00:15 left" in bar_line(10, 40, 5.0, ncols=60, **said)


def test_a_slow_pace_is_told_by_how_long_one_takes():
    assert bar_line(1, 40, 4.0).endswith("02:36 left  4.0 s each")
    assert bar_line(10, 40, 4.0).endswith("00:12 left  2.5/s")
    assert bar_line(30, 40, 1.0, initial=20).endswith("00:01 left  10/s")


def test_nothing_done_has_no_rate():
    assert bar_line(0, 40, 70.0, prefix="CNN: training: ", unit=" epochs") == (
        "CNN: training  0/40 epochs  01:10 so far"
    )
    assert bar_line(20, 40, 0.0, initial=20).startswith("20/40")


def test_a_line_is_drawn_again_while_nothing_moves_it(monkeypatch):
    drawn = threading.Event()

    class Watched(TerminalLine):
        def refresh(self, *args, **kwargs):
            if threading.current_thread() is not threading.main_thread():
                drawn.set()
            return super().refresh(*args, **kwargs)

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(terminal, "_TICK", 0.001)
    line = Watched(desc="CNN: training", total=3)
    drawing = [thread for thread in threading.enumerate() if thread.name.endswith("(_draw)")]
    assert drawn.wait(20)
    line.close()
    for thread in drawing:
        thread.join(20)
        assert not thread.is_alive()


def test_a_stream_that_is_no_terminal_gets_lines_as_they_are():
    line = "word " * 40
    assert broken(line, io.StringIO()) == line


def test_a_terminal_gets_lines_broken_between_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert broken("HOLDS  a ViT is less sensitive than a CNN", Terminal(), " " * 7) == (
        "HOLDS  a ViT is less\n       sensitive\n       than a CNN"
    )
    assert broken("x" * 30, Terminal()) == "x" * 30
