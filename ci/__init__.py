"""Owns: what builds and checks this repository. None of it is part of a wheel."""
