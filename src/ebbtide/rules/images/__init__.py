"""What image policies say: periods, named policies, who gets which, and how many of the newest stay. Pure."""
