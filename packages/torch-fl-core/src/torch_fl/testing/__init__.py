"""Owns: the conformance suite, what a backend of the ``flagos`` device must be able to show.

PyTorch's own databases of operators, modules and optimizers, the device against stock CPU::

    torch-fl conformance
    pytest -p torch_fl.testing.pytest_plugin --pyargs torch_fl.testing

``suites`` says what is run, ``harness`` how, ``running`` puts a run together, ``evidence`` keeps
what came out. Nothing here is imported by the device itself.
"""
