"""Owns: the `torch-fl` command. `main` has the list of subcommands, one module each does the work.

Modules here import torch only inside the functions that work with it.
"""
