"""Owns: a pretend accelerator for tests: a device type of PyTorch that its CPU build does not use,
on host memory, in C++ (device.h says what it promises). Compiled at its first use, `building`;
`loading` brings it into a process; `processes` runs tests in processes that have it.
"""
