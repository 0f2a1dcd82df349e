"""Owns: the machinery that all suites share: a device under test against stock CPU.

==================  =================================================================
``cases``           one call, a pass of them, a suite of passes, the tiers' limits
``tree``            walking through nested arguments and results
``movers``          copies of a sample's arguments on one device
``call``            one call and what it leaves behind: results, inputs, version counters
``telling``         a call whose error or warnings are the result
``compare``         two such outcomes, compared
``declared``        entries that need special treatment, each with its reason
``evaluate``        one entry in one pass: reference call, device call, comparison
``wrong``           deliberately wrong operators, to show that a suite sees them
``configurations``  the settings that any suite runs with: devices, guard, forced routes
``worker``          a process that evaluates what it is told to, and may crash
``runner``          the worker processes, their time limits and their replacement
``results``         JSON lines: writing, reading, resuming, merging
``exclusions``      the lists of known failures, which may only shrink
``report``          entries, samples and the verdict
==================  =================================================================

The reference is always stock CPU on the same machine: every expected value is computed, none
is written down. Samples are generated once, on the CPU, and copied to both sides.
"""
