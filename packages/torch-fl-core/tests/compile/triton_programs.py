"""Owns: users' Triton kernels. Triton reads them from a file, annotations too."""

import triton
import triton.language as tl


@triton.jit
def masked(out, values, mask, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    keep = tl.load(mask + at, at < n).to(tl.int1)
    tl.store(out + at, tl.load(values + at, keep), at < n)


@triton.jit
def users_own(pointer, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(pointer + at, at, at < n)


@triton.jit
def hungry(pointer):
    tl.store(pointer, 1)


@triton.jit
def unwanted(pointer):
    tl.store(pointer, 1)
