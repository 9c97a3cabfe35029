"""What a repository's metadata references, as every collector begins with it: who reaches which ranges."""
