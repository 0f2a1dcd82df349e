"""Owns: the two ways in which `./dev` ends early with a text for the user."""

from __future__ import annotations


class UserError(Exception):
    """Something that the user has to change first. The text says what is wrong and what to do.

    Becomes exit code 2.
    """


class StepError(Exception):
    """A step of the preparation (pip, the build) failed. The text ends in what to run again.

    Becomes exit code 1.
    """
