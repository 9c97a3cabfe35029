"""Container registries: what they store, what runs, and which tags and manifests a purge may delete."""
