"""The inventory of a registry: scans, the snapshots that they write, and notifications."""
