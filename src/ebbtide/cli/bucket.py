"""`ebb bucket`: S3 buckets under lifecycle rules."""

from __future__ import annotations

from ebbtide.cli.lazy import lazy_group

COMMANDS = {
    "rules": ("bucket_rules", "Lifecycle rules of buckets, in S3's JSON or XML."),
    "where": ("bucket_where", "Say where the versions of a key were moved."),
    "forecast": ("bucket_forecast", "Say what the rules will do in the coming days."),
}

app = lazy_group(COMMANDS, help="Work with S3 buckets under lifecycle rules.")


@app.callback()
def _group() -> None:
    """Work with S3 buckets under lifecycle rules."""
