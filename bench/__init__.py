"""Benchmarks: reproducible, and never a test of speed."""
