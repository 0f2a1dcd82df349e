"""Owns: the conformance suite, what a backend of the ``flagos`` device must be able to show.

``python -m torch_fl.testing.op_db`` runs PyTorch's own operator database against stock CPU.
Nothing here is imported by the device itself.
"""
