"""What all versioned repositories share: the lifecycle policy and the retention rules."""
