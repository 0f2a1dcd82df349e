"""Owns: the programs, by what they are about; `registry.load` imports every module here."""
