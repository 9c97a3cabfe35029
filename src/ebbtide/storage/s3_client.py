"""
The connection to an S3 server: options, client, retries, and the server's errors as Ebbtide's.

Everything goes through boto3, and nothing through obstore: obstore lists the key ``dir/`` as ``dir`` and
sends a delete of ``dir/`` as one of ``dir``, which is another object; and it lists by whole folders only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import boto3
import botocore.session
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

from ebbtide.core.errors import BadInput, ConfigError, Denied, NotFound, SlowDown, StoreError
from ebbtide.storage.network import check_answers, check_endpoint, names_loopback
from ebbtide.storage.rate_limit import Backoff

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
_LOCAL_CREDENTIALS = frozenset({"env", "shared-credentials-file", "config-file", "custom-process"})
"""Providers of credentials that contact no server."""
FAILURES = (ClientError, BotoCoreError, ResponseParserError)


@dataclass(frozen=True)
class S3Options:
    """The settings of an S3 store that are no secret; each is an option of the StoreSpec."""

    endpoint: str = ""
    region: str = ""
    path_style: bool = False
    allow_http: bool = False
    ordered: bool = True
    """False if the server does not list in key order (SeaweedFS): listings are then sorted in memory."""
    delete_page: int = 250
    retries: int = 6
    profile: str = ""
    """The profile of the AWS files whose credentials to use; empty leaves the choice to boto3."""
    local_only: bool = False
    """True if the server must be on this machine, as in a rehearsal."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> S3Options:
        """Read the options of a StoreSpec; an unknown name or a wrong value raises ConfigError."""
        known = cls.__dataclass_fields__
        for name in options:
            if name not in known:
                raise ConfigError(f"option {name!r} is unknown to S3 stores", fix=f"use {', '.join(known)}")
        found = cls(**{name: _value(name, text) for name, text in options.items()})  # type: ignore[arg-type]
        if found.endpoint and not _is_web_address(found.endpoint):
            raise ConfigError(
                f"the endpoint {found.endpoint!r} is not a web address",
                why="it needs http:// or https:// and a host",
                fix=f"write it as https://HOST[:PORT], for example https://{found.endpoint.rpartition('/')[2]}",
            )
        if found.endpoint.lower().startswith("http://") and not found.allow_http:
            raise ConfigError(
                "the endpoint is plain http",
                why="requests could be read and changed on the network",
                fix="use https, or set allow_http=yes where the network is your own",
            )
        if found.local_only:
            check_endpoint(found.endpoint)
        return found


def _is_web_address(endpoint: str) -> bool:
    """Return True if an endpoint has a scheme, a host and no invalid port."""
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _value(name: str, text: str) -> str | bool | int:
    """Parse one option as text, number or boolean."""
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
    if options.endpoint:
        check_answers(options.endpoint, "the store")
    try:
        return _client(options)
    except ProfileNotFound as missing:
        raise ConfigError(
            f"there is no AWS profile {missing.kwargs['profile']!r}",
            why="'profile' in ebbtide.toml or AWS_PROFILE names it",
            fix="check ~/.aws/config and ~/.aws/credentials",
        ) from None
    except BotoCoreError as broken:
        # Its text may quote the files, and they hold secrets.
        raise ConfigError(
            f"the AWS configuration cannot be used ({type(broken).__name__})",
            fix="check ~/.aws/config, ~/.aws/credentials and the AWS_ variables",
        ) from None


def _client(options: S3Options) -> S3Client:
    session = _session(options)
    is_local = options.local_only or names_loopback(urlsplit(options.endpoint).hostname or "")
    client: S3Client = session.client(
        "s3",
        endpoint_url=options.endpoint or None,
        region_name=options.region or session.region_name or "us-east-1",
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path" if options.path_style else "auto"},
            # None takes the proxies of the environment.
            proxies={} if is_local else None,
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=16,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    if options.local_only:
        client.meta.events.register_first("before-send.s3", _check_local)
    return client


def _session(options: S3Options) -> boto3.session.Session:
    """Find credentials as AWS tools do; with `local_only`, only in variables, files and programs."""
    found = botocore.session.get_session()
    session = boto3.session.Session(profile_name=options.profile or None, botocore_session=found)
    if options.local_only:
        resolver = found.get_component("credential_provider")
        resolver.providers = [one for one in resolver.providers if one.METHOD in _LOCAL_CREDENTIALS]
    return session


def _check_local(request: Any, **_: Any) -> None:
    """Raise before a request leaves this machine, even if the server redirects to another host."""
    check_endpoint(request.url)


def call(backoff: Backoff, operation: Callable[[], T]) -> T:
    """Run one request, with retries if the server is busy or the connection breaks."""
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
    Return the store's error code, or the name of the exception if the store did not answer.

    Never its text: that of a broken connection contains the URL, which may contain a signature.
    """
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def fail(error: Exception, what: str) -> NoReturn:
    """Raise the server's error as an Ebbtide error."""
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
    if code == "NoCredentialsError":
        raise StoreError(
            f"there are no credentials for {what}",
            why="neither the environment, nor the AWS files, nor this machine's role has any",
            fix="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run 'aws configure'",
        ) from None
    refused = code in DENIED | UNKNOWN_USER
    fix = "check the credentials and the bucket's policy" if refused else "try again later"
    kind = Denied if code in DENIED else StoreError
    raise kind(f"the store failed at {what}", why=f"it answered {code}", fix=fix) from None
