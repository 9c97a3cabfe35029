"""Plan and apply: freeze decisions into a plan, verify them again, delete, record."""
