"""Owns: torch.compile on flagos.

A graph stays on flagos through Dynamo and AOTAutograd; then `renaming` gives it the device that
flagos stands on, Inductor compiles it there, and `regions` calls the result with flagos tensors.
"""
