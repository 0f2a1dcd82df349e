"""Owns: the graphs, one file for each theme."""
