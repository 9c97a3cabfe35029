"""Image policies: periods, named policies, the rules that assign them, and their document. Pure."""
