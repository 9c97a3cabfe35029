"""The browser, for every test of what a person sees."""

from tests.services.chromium import chromium

__all__ = ["chromium"]
