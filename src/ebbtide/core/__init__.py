"""The pure core: deadlines, time, decisions, manifests, outcomes, the breaker, errors. No Spark, no I/O."""
