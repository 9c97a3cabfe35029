"""Container registries: what they hold, what runs, and which tags and manifests the daily purge may take."""
