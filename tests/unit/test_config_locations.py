"""Locations in ebbtide.toml: named places with options of their own, and no name that S3 has taken."""

import pytest

from ebbtide.config import load_settings
from ebbtide.core.errors import ConfigError
from ebbtide.storage.store import StoreSpec


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Read a text as ebbtide.toml."""
    monkeypatch.chdir(tmp_path)

    def read(text):
        (tmp_path / "ebbtide.toml").write_text(text)
        return load_settings(environ={})

    return read


def test_a_location_is_reached_by_its_own_options_or_by_those_of_the_store(load):
    """One that gives options stands for itself, one that gives none is in the configured store."""
    settings = load(
        """
        [store]
        endpoint = "https://here"
        path_style = true
        [bucket.locations.COLD]
        url = "s3://cold/archive/"
        [bucket.locations.far]
        url = "s3://cold"
        endpoint = "https://there"
        profile = "backup"
        [bucket.locations.disk]
        url = "file:///mnt/disk"
        """
    )

    assert {
        "COLD": StoreSpec("s3://cold/archive/", {"endpoint": "https://here", "path_style": "true"}),
        "far": StoreSpec("s3://cold", {"endpoint": "https://there", "profile": "backup"}),
        "disk": StoreSpec("file:///mnt/disk", {}),
    } == settings.locations()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[bucket.locations.GLACIER]\nurl = 's3://x'", "storage class of s3"),
        ("[bucket.locations.standard]\nurl = 's3://x'", "storage class of s3"),
        ("[bucket.locations.'a b']\nurl = 's3://x'", "is not a valid name"),
        ("[bucket.locations.cold]\nendpont = 'x'\nurl = 's3://x'", "did you mean 'endpoint'"),
        ("[bucket.locations.cold]\nendpoint = 'https://x'", "bucket.locations.cold.url"),
        ("[bucket.locations.cold]\nurl = 'cold'", "s3://bucket/prefix or file:///folder"),
        ("[bucket.locations.cold]\nurl = 's3://x'\nsecret_key = 'x'", "unknown setting"),
        ("[bucket]\nlocation = 3", "did you mean 'locations'"),
    ],
)
def test_a_wrong_location_is_explained(load, text, words):
    """A taken or odd name, an unknown key, a missing or odd address each say what is wrong."""
    with pytest.raises(ConfigError) as wrong:
        load(text)

    assert words in str(wrong.value)
