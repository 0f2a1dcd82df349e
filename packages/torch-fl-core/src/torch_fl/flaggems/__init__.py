"""Owns: FlagGems' Triton kernels as the route `flaggems`."""
