"""Fixtures that every test may ask for; each lives in the module of its service."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `tests.services` is found however pytest starts

from tests.seeds import draw_alike
from tests.services.failing_store import failing_store
from tests.services.lake import lake
from tests.services.postgres import postgres_url
from tests.services.registry import registry
from tests.services.seaweed import bucket, s3_server
from tests.services.spark import spark

__all__ = ["bucket", "failing_store", "lake", "postgres_url", "registry", "s3_server", "spark"]

# A busy machine is no failure, neither when it draws an example nor when it tries one.
settings.register_profile("ebbtide", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ebbtide")
draw_alike()
