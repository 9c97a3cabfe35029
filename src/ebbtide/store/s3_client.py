"""
The connection to an S3 server: options, client, retries, and the server's errors in our words.

Everything goes through boto3, and nothing through obstore: obstore lists the key ``dir/`` as ``dir`` and
sends a delete of ``dir/`` as one of ``dir``, which is another object; and it lists by whole folders only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ProfileNotFound,
)
from botocore.parsers import ResponseParserError

from ebbtide.errors import BadInput, ConfigError, NotFound, SlowDown, StoreError
from ebbtide.store.backoff import Backoff

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

SLOW = frozenset({"SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "503", "429"})
BUSY = SLOW | {"InternalError", "RequestTimeout", "OperationAborted", "500", "502", "504"}
UNKNOWN_USER = frozenset(
    {"SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "NoCredentialsError"}
)
DENIED = frozenset({"AccessDenied", "AllAccessDisabled", "Forbidden", "403"})
ABSENT = frozenset({"NoSuchKey", "NoSuchVersion", "NotFound", "404"})
CHANGED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412"})
TRANSIENT = (
    HTTPClientError,
    EndpointConnectionError,
    ConnectTimeoutError,
    IncompleteReadError,
    ResponseParserError,
)
FAILURES = (ClientError, BotoCoreError, ResponseParserError)


@dataclass(frozen=True)
class S3Options:
    """The settings of an S3 store that are no secret; each is an option of the StoreSpec."""

    endpoint: str = ""
    region: str = ""
    path_style: bool = False
    allow_http: bool = False
    ordered: bool = True
    """No, if the server does not list in key order (SeaweedFS): listings are then sorted in memory."""
    delete_page: int = 250
    retries: int = 6
    profile: str = ""
    """A profile of the usual AWS files whose credentials to use; none is boto3's own choice."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> S3Options:
        """Read the options of a StoreSpec; an unknown name or a wrong value raises ConfigError."""
        known = cls.__dataclass_fields__
        for name in options:
            if name not in known:
                raise ConfigError(f"option {name!r} is unknown to S3 stores", fix=f"use {', '.join(known)}")
        found = cls(**{name: _value(name, text) for name, text in options.items()})  # type: ignore[arg-type]
        if found.endpoint.lower().startswith("http://") and not found.allow_http:
            raise ConfigError(
                "the endpoint is plain http",
                why="whoever listens on the way can read and change requests",
                fix="use https, or set allow_http=yes where the network is your own",
            )
        return found


def _value(name: str, text: str) -> str | bool | int:
    """Read one option as the kind that it is."""
    if name in ("endpoint", "region", "profile"):
        return text
    if name in ("delete_page", "retries"):
        most = 1000 if name == "delete_page" else 50
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise ConfigError(f"{name} is {text!r}", fix=f"use a whole number from 1 to {most}")
        return int(text)
    if text.lower() not in ("yes", "no", "true", "false"):
        raise ConfigError(f"{name} is {text!r}", fix="use yes or no")
    return text.lower() in ("yes", "true")


def connect(options: S3Options) -> S3Client:
    """Make a client with the credentials of boto3's chain; retries are ours, so botocore makes none."""
    try:
        session = boto3.session.Session(profile_name=options.profile or None)
    except ProfileNotFound:
        raise ConfigError(
            f"there is no profile {options.profile!r}", fix="check the AWS configuration files"
        ) from None
    return session.client(
        "s3",
        endpoint_url=options.endpoint or None,
        region_name=options.region or session.region_name or "us-east-1",
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path" if options.path_style else "auto"},
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=16,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


def call(backoff: Backoff, operation: Callable[[], T]) -> T:
    """Run one request, again while the server is busy or the line breaks; the last error is raised."""
    last: Exception | None = None
    for _ in backoff.attempts():
        try:
            return operation()
        except ClientError as error:
            if code_of(error) not in BUSY:
                raise
            last = error
        except TRANSIENT as error:
            last = error
    raise last or BadInput("a request needs at least one try")


def code_of(error: Exception) -> str:
    """
    Name an error by the store's code, or by its kind where the store said nothing.

    Never by its text: that of a broken connection holds the URL, which may hold a signature.
    """
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def fail(error: Exception, what: str) -> NoReturn:
    """Raise the server's error as one of ours."""
    code = code_of(error)
    if code in ABSENT:
        raise NotFound(f"there is no object {what}") from None
    if code == "NoSuchBucket":
        raise NotFound(f"there is no bucket for {what}", fix="check the store's address") from None
    if code in SLOW:
        raise SlowDown(
            f"the store kept asking for fewer requests at {what}",
            why=f"it answered {code} at every try",
            fix="try again later, or with fewer executors or a lower rate",
        ) from None
    refused = code in DENIED | UNKNOWN_USER
    fix = "check the credentials and the bucket's policy" if refused else "try again later"
    raise StoreError(f"the store failed at {what}", why=f"it answered {code}", fix=fix) from None
