"""What is decided and what happened: decisions, plans, outcomes, the breaker. Pure."""
