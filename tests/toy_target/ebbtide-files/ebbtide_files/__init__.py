"""A target for Ebbtide: the files of a folder, which go when they are older than some days."""
