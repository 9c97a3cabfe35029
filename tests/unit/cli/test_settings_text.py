"""Every setting is explained, in the file that `ebb init` writes and in the reference."""

import re
import tomllib
from pathlib import Path

import pytest

from ebbtide.cli.main import run
from ebbtide.cli.settings_text import all_settings, markdown_table, toml_text
from ebbtide.config import Settings, load_settings

SETTINGS = list(all_settings())
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def test_the_walk_finds_what_the_classes_have():
    """Settings of the file itself, of its sections and of tables of sections are found."""
    paths = {setting.path for setting in SETTINGS}

    assert {"root", "spark.master", "bucket.locations.NAME.profile", "registry.oldest_scan_hours"} <= paths
    assert {name for name in Settings.model_fields if name != "root"} == {
        setting.section.partition(".")[0] for setting in SETTINGS if setting.section
    }


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.path)
def test_every_setting_is_explained(here, setting):
    """A setting has a description, a default or an example, and a place in both texts."""
    run(["init"])
    written = (here / "ebbtide.toml").read_text()

    assert setting.description.endswith(".")
    assert (setting.default, setting.example) != (None, None)
    assert re.search(rf"^# {setting.name} = ", written, re.MULTILINE)
    assert f"`{setting.path}`" in PAGE.read_text()


def test_what_init_writes_changes_nothing(here):
    """The file as it is written means what no file means."""
    before = load_settings(environ={})
    run(["init"])

    assert before == load_settings(environ={})


def test_every_line_can_be_taken_into_use(here):
    """With every # before a setting taken away, the file is one that Ebbtide reads."""
    text = re.sub(r"^# (\[?[\w.]+(?:\]| = ))", r"\1", toml_text(), flags=re.MULTILINE)
    (here / "ebbtide.toml").write_text(text)
    settings = load_settings(environ={})

    assert "s3://archive/logs" == settings.bucket.locations["NAME"].url
    assert {"spark.executor.memory": "4g"} == settings.spark.conf
    assert len(SETTINGS) == sum(_count(value) for value in tomllib.loads(text).values())


def test_the_reference_has_the_table():
    """The page has the table that the classes give: paste what `markdown_table` returns if it has not."""
    assert markdown_table() in PAGE.read_text()


def _count(value):
    """Count the settings in a section; a table of Spark's own settings is one."""
    if not isinstance(value, dict) or "spark.executor.memory" in value:
        return 1
    return sum(_count(one) for one in value.values())
