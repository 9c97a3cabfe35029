"""The Spark session: how it is started, found, watched, and how its failures are told."""
