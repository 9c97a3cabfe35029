"""The recycle bin of a registry: images are set aside before they go, and come back byte for byte."""
