TORCH: str
"""The version of torch that the binaries were built for."""
