"""What a registry holds, found on Spark and dated by what Ebbtide has seen itself."""
