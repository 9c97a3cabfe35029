"""What can be collected: the target protocol, and how a target is found by its URL."""
