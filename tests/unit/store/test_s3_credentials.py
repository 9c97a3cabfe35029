"""Credentials for S3 are found where AWS's own tools look."""

import pytest

from ebbtide.core.errors import ConfigError
from ebbtide.storage.s3_client import S3Options, connect

FILE = """
[default]
aws_access_key_id = OF_DEFAULT
aws_secret_access_key = hush
[archive]
aws_access_key_id = OF_ARCHIVE
aws_secret_access_key = hush
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give a home with AWS's files, and no variables."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(FILE)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def key_of(**options):
    """Give the access key that a client signs with."""
    return connect(S3Options.parse(options))._request_signer._credentials.access_key


def test_files_profiles_and_variables(home, monkeypatch):
    """The files count, AWS_PROFILE and the option `profile` choose in them, and variables beat them."""
    found = [key_of(), key_of(profile="archive")]
    monkeypatch.setenv("AWS_PROFILE", "archive")
    found.append(key_of())
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OF_THE_ENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    found.append(key_of())

    assert ["OF_DEFAULT", "OF_ARCHIVE", "OF_ARCHIVE", "OF_THE_ENVIRONMENT"] == found


def test_a_profile_that_is_not_there_is_named(home, monkeypatch):
    """A wrong AWS_PROFILE is bad input, not a defect."""
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    with pytest.raises(ConfigError, match="no AWS profile 'nowhere'"):
        key_of()


def test_files_that_cannot_be_read_are_not_quoted(home):
    """A damaged file is bad input, and what it holds is not shown."""
    (home / ".aws" / "credentials").write_text("aws_secret_access_key = hush\n")
    with pytest.raises(ConfigError, match="AWS configuration cannot be used") as raised:
        key_of()

    assert "hush" not in str(raised.value)
