"""What a policy says: the deadline algebra and the policies of each front door. Pure."""
