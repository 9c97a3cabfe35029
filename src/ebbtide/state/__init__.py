"""What is remembered between runs: runs, batches, outcomes, locks."""
