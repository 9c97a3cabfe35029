"""Configuration: one file, the environment, and no unknown keys."""

import subprocess
import sys
from pathlib import Path

import pytest

from ebbtide.config import load_settings
from ebbtide.core.errors import ConfigError


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


def test_the_list_of_running_images_lies_beside_the_file(here, monkeypatch):
    """A file of the same name in the current folder, which may say that nothing runs, is another one."""
    (here / "ebbtide.toml").write_text('[registry]\nrunning = "pods.json"\n')
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    named = load_settings(environ={"EBBTIDE_REGISTRY__RUNNING": "other.json"})

    assert str(here / "pods.json") == load_settings(environ={}).registry.running
    assert "other.json" == named.registry.running


@pytest.mark.parametrize("name", ["batch_size", "wave_size"])
def test_the_size_of_a_batch_has_an_earlier_name(here, name):
    """`wave_size` still works, in the file and as a variable."""
    (here / "ebbtide.toml").write_text(f"[deletes]\n{name} = 7\n")
    variable = {f"EBBTIDE_DELETES__{name.upper()}": "8"}

    assert 7 == load_settings(environ={}).deletes.batch_size
    (here / "ebbtide.toml").unlink()
    assert 8 == load_settings(environ=variable).deletes.batch_size


def test_both_names_of_the_size_of_a_batch_are_an_error(here):
    """Which of two limits counts is not guessed."""
    (here / "ebbtide.toml").write_text("[deletes]\nbatch_size = 7\nwave_size = 8\n")

    with pytest.raises(ConfigError, match="earlier name of batch_size"):
        load_settings(environ={})


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


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("EBBTIDE_SPRAK__MASTER", "x", "EBBTIDE_SPRAK__MASTER: unknown setting 'sprak'"),
        ("EBBTIDE_DELETES__PAGE", "many", "EBBTIDE_DELETES__PAGE: deletes.page is 'many'"),
        ("EBBTIDE_VERBOSE", "1", "EBBTIDE_VERBOSE: unknown setting 'verbose'"),
    ],
)
def test_a_wrong_variable_is_not_blamed_on_the_file(here, variable, value, words):
    """The error names the variable that is wrong, although there is a file, which is right."""
    (here / "ebbtide.toml").write_text("[spark]\nmaster = 'local[1]'\n")
    with pytest.raises(ConfigError, match=words):
        load_settings(environ={variable: value})


def test_a_missing_file_that_was_named_is_an_error(here):
    """A configuration that was asked for must be there."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(Path("nowhere.toml"), environ={})


def test_a_variable_replaces_a_whole_table(here):
    """A table in JSON takes the place of the file's table; a variable of one key changes that key alone."""
    (here / "ebbtide.toml").write_text('[spark]\nmaster = "local[1]"\n[spark.conf]\na = "1"\nb = "2"\n')
    table = load_settings(environ={"EBBTIDE_SPARK__CONF": '{"c": "3"}'})
    key = load_settings(environ={"EBBTIDE_SPARK__CONF__A": "x"})

    assert ("local[1]", {"c": "3"}) == (table.spark.master, table.spark.conf)
    assert {"a": "x", "b": "2"} == key.spark.conf


@pytest.mark.parametrize(
    ("variable", "text", "section", "expected"),
    [
        ("EBBTIDE_STORE__REGION", "null", "store", None),
        ("EBBTIDE_STORE__REGION", '"eu"', "store", "eu"),
        ("EBBTIDE_STORE__REGION", "5", "store", "5"),
        ("EBBTIDE_BREAKER__MAX_DELETE_BYTES", "1e12", "breaker", 10**12),
        ("EBBTIDE_BREAKER__MAX_DELETE_BYTES", "9007199254740993", "breaker", 2**53 + 1),
    ],
)
def test_spellings_of_a_value(here, variable, text, section, expected):
    """A variable is read as the type of its setting; null unsets it, and text may be quoted."""
    (here / "ebbtide.toml").write_text('[store]\nregion = "here"\n')
    name = variable.split("__")[1].lower()

    assert expected == getattr(getattr(load_settings(environ={variable: text}), section), name)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("EBBTIDE_ROOT__X", "1"), ("EBBTIDE_BREAKER__MAX_DELETE_FRACTION", "true"), ("EBBTIDE_SPARK", "x")],
)
def test_a_variable_that_cannot_be_followed_is_named(here, variable, value):
    """A part of a plain value, a flag for a number and text for a section are refused."""
    with pytest.raises(ConfigError, match=f"{variable}: ") as wrong:
        load_settings(environ={"EBBTIDE_ROOT": "state", variable: value})

    assert wrong.value.fix


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EBBTIDE_LEDGER", "postgresql://me:hunter2@db/runs"),
        ("EBBTIDE_DELETES__PAGE", "postgresql://me:hunter2@db/runs"),
        ("EBBTIDE_SPARK__CONF", '{"spark.secret": "hunter2"'),
        ("EBBTIDE_SPARK__MASTER__SECRET", "hunter2"),
    ],
)
def test_an_error_shows_no_secret(here, variable, value):
    """A value that may hold a password is not shown, only where it stands."""
    with pytest.raises(ConfigError, match=variable) as wrong:
        load_settings(environ={variable: value})

    assert "hunter2" not in str(wrong.value)


def test_a_dotenv_file_is_not_read(here, monkeypatch):
    """Only ebbtide.toml and real variables count, not a .env file that lies in the folder."""
    (here / ".env").write_text("EBBTIDE_SPARK__MASTER=local[7]\nEBBTIDE_NO_SUCH=1\n")
    monkeypatch.setenv("EBBTIDE_DELETES__PAGE", "7")
    settings = load_settings()

    assert ("local[*]", 7) == (settings.spark.master, settings.deletes.page)


def test_help_does_not_load_the_reader_of_variables():
    """The command line starts without pydantic-settings, which is slow to import."""
    code = "import sys, ebbtide.cli.main; sys.exit('pydantic_settings' in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
