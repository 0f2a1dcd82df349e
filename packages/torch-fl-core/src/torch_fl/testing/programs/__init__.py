"""Owns: whole small programs, run on a device of PyTorch's and on ``flagos`` in front of it.

A backend that delegates must give what its target gives natively, bit for bit where that is
deterministic itself::

    python -m torch_fl.testing.programs

``registry`` says what a program is and ``themes`` has them; ``child`` runs them on one device in a
process of its own, ``side`` feeds and times that process, ``compare`` judges, ``running`` puts a
run together, ``record`` keeps what came out, ``known`` has differences that are by design.
"""
