"""`ebb bucket`: S3 buckets under lifecycle rules."""

from __future__ import annotations

import typer

from ebbtide.cli import bucket_rules

app = typer.Typer(no_args_is_help=True, help="Work with S3 buckets under lifecycle rules.")
app.add_typer(bucket_rules.app, name="rules")


@app.callback()
def _group() -> None:
    """Work with S3 buckets under lifecycle rules."""
