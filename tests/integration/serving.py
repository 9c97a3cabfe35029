"""A program that serves S3 on the loopback of its own host until its input ends; prints where."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ebbtide.targets.s3.seaweedfs import seaweed


def main(folder: Path, bucket: str) -> None:
    """Serve one bucket."""
    with seaweed(folder) as server:
        server.client().create_bucket(Bucket=bucket)
        sys.stdout.write(json.dumps({"endpoint": server.endpoint, "env": server.env}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


main(Path(sys.argv[1]), sys.argv[2])
