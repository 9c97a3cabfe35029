"""Object lifecycle on a lake (seed 000), one module a step."""
