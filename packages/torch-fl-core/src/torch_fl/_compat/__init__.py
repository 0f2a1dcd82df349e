"""Owns: every place where torch_fl touches what PyTorch does not promise.

One module for each adaptation, with its reason, the versions it is for and the test that fails by
name when a torch release makes it unnecessary or wrong.
"""
