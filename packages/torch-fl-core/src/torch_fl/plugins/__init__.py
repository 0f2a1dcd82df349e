"""Owns: what a backend says about itself (spec), and which one a process uses (selection)."""
