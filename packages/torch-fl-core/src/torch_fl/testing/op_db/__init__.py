"""Owns: PyTorch's operator database (``op_db``), the device under test against stock CPU.

Run it with ``python -m torch_fl.testing.op_db``; ``--help`` lists the options. The parts:

=================  ==================================================================
``declared``       operators that need special treatment, each with its reason
``tree``           walking through nested arguments and results
``movers``         copies of a sample's arguments on one device
``call``           one call and what it leaves behind: results, inputs, version counters
``compare``        two such outcomes, compared
``passes``         which calls are made for an operator: dtypes, gradients, ``out=``, ...
``evaluate``       one operator in one pass: reference call, device call, comparison
``wrong_add``      a deliberately wrong ``add``, to show that the comparison sees it
``worker``         a process that evaluates what it is told to, and may crash
``runner``         the worker processes, their time limits and their replacement
``results``        JSON lines: writing, reading, resuming, merging
``exclusions``     the list of known failures, which may only shrink
``report``         entries, samples and the verdict
``tiers``          how many samples each tier compares
=================  ==================================================================

The reference is always stock CPU on the same machine: every expected value is computed, none
is written down. Samples are generated once, on the CPU, and copied to both sides.
"""
