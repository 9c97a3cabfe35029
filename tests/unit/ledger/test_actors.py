"""Who is at work: the name that goes into the log."""

from __future__ import annotations

import getpass

import pytest

from ebbtide.config import load_settings
from ebbtide.core.errors import ConfigError
from ebbtide.state.users import current_user


def test_a_service_says_for_whom_it_works(monkeypatch):
    """EBBTIDE_USER is the user, and no setting."""
    monkeypatch.setenv("EBBTIDE_USER", "ci-bot")

    assert "ci-bot" == current_user()
    assert load_settings(environ={"EBBTIDE_USER": "ci-bot"})


def test_else_it_is_the_user_of_the_machine(monkeypatch):
    """Without the variable, or with an empty one, the system's user counts."""
    monkeypatch.setenv("EBBTIDE_USER", "")
    monkeypatch.setenv("LOGNAME", "maria")

    assert "maria" == getpass.getuser() == current_user()


def test_nobody_is_called_system(monkeypatch):
    """The name of the purge is refused as EBBTIDE_USER; a user of the machine with it is told apart."""
    monkeypatch.setenv("LOGNAME", "system")
    monkeypatch.setenv("EBBTIDE_USER", "")
    by_machine = current_user()
    monkeypatch.setenv("EBBTIDE_USER", "system")

    assert "user system" == by_machine
    with pytest.raises(ConfigError, match="EBBTIDE_USER"):
        current_user()


@pytest.mark.parametrize("name", [" maria", "a\nb", "x" * 257])
def test_names_that_would_spoil_a_log(monkeypatch, name):
    """A name must be one line that reads as itself."""
    monkeypatch.setenv("EBBTIDE_USER", name)
    with pytest.raises(ConfigError, match="EBBTIDE_USER"):
        current_user()
