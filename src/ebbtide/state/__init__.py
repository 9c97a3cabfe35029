"""What is remembered between runs: runs, waves, outcomes, locks."""
