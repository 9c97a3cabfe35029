"""Configuration: one file, the environment, and no unknown keys."""

from pathlib import Path

import pytest

from ebbtide.config import load_settings
from ebbtide.errors import ConfigError


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_everything_has_a_default(here):
    """Without a file and without variables the state lives under .ebbtide here."""
    settings = load_settings(environ={})

    assert here / ".ebbtide" == settings.root
    assert settings.database("ledger").endswith(".ebbtide/ledger.db")


def test_the_file_is_found_from_a_folder_below(here, monkeypatch):
    """ebbtide.toml of a folder above counts, and its root is relative to the file."""
    (here / "ebbtide.toml").write_text('root = "state"\n[spark]\nmaster = "local[1]"\n')
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    settings = load_settings(environ={})

    assert (here / "state", "local[1]") == (settings.root, settings.spark.master)


def test_variables_override_the_file(here):
    """EBBTIDE_SECTION__KEY beats the file; numbers and booleans are read as such."""
    (here / "ebbtide.toml").write_text("[breaker]\nmax_delete_fraction = 0.1\n")
    settings = load_settings(
        environ={"EBBTIDE_BREAKER__MAX_DELETE_FRACTION": "0.9", "EBBTIDE_STORE__PATH_STYLE": "true"}
    )

    assert 0.9 == settings.breaker.max_delete_fraction
    assert {"path_style": "true"} == settings.store.options()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[spark]\nmastr = 'x'", "did you mean 'master'"),
        ("rot = 'x'", "did you mean 'root'"),
        ("[breaker]\nmax_delete_fraction = 2", "breaker.max_delete_fraction is 2"),
        ("[deletes]\npage = 'many'", "deletes.page is 'many'"),
        ("[spark", "not TOML"),
        ("spark = 3", "spark is 3"),
    ],
)
def test_a_wrong_file_names_the_setting(here, text, words):
    """An unknown key names the nearest valid one; a wrong value names the setting."""
    (here / "ebbtide.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_settings(environ={})


def test_an_unknown_variable_is_an_error(here):
    """A misspelt variable is not quietly ignored."""
    with pytest.raises(ConfigError, match="did you mean 'max_delete_fraction'"):
        load_settings(environ={"EBBTIDE_BREAKER__MAX_DELETE_FRACTIO": "0.1"})


def test_a_missing_file_that_was_named_is_an_error(here):
    """A configuration that was asked for must be there."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(Path("nowhere.toml"), environ={})
