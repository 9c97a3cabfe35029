"""What is said of a command that a signal ended."""

from __future__ import annotations

import signal

import pytest

from ebbtide.cli.failure import Interrupted, fail, signals_raise


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_an_error_on_the_way_out_does_not_hide_the_signal(depth, capsys):
    """If the JVM died of the same signal, clean-up fails; the command was interrupted all the same."""

    def end(level: int) -> None:
        if level == 0:
            raise Interrupted(15)
        try:
            end(level - 1)
        finally:
            raise ConnectionRefusedError("the JVM is gone")

    with pytest.raises((Interrupted, ConnectionRefusedError)) as ended:
        end(depth)

    assert 143 == fail(ended.value, [])
    assert "interrupted; run the same command again to go on\n" == capsys.readouterr().err


def test_an_error_alone_is_no_interruption(capsys):
    """A connection that is refused without a signal is a failure."""
    assert 1 == fail(ConnectionRefusedError("no"), [])
    assert "interrupted" not in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_a_finalizer_lost_is_remembered(capsys):
    """Python drops what is raised in a finalizer; what fails afterwards was interrupted all the same."""

    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    with signals_raise():
        Finalized()
        code = fail(ConnectionRefusedError("the JVM is gone"), [])
    with signals_raise():
        later = fail(ConnectionRefusedError("the JVM is gone"), [])

    assert (143, 1) == (code, later)
    assert capsys.readouterr().err.startswith("interrupted; run the same command again to go on\n")
