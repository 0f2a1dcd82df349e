"""Owns: operators that a compiled region calls with flagos tensors, as an eager program would.

In a renamed graph an operator that stays a call gets the target's tensors, and so the target's
kernel. That is wrong for three kinds: users' operators with a kernel for flagos or for all devices,
operators that the configuration routes elsewhere, and on the host those that draw random numbers,
which belong to flagos' generators. Each is called through an operator of ours with the same schema,
which gives its arguments their flagos names again.

`choice` says which operators those are, `graphs` puts ours in their place, `names` is what ours are
called, `schemas` what they take, `kernels` what they do, and `operators` registers them.
"""

from torch_fl.compile.eager.choice import users_operators
from torch_fl.compile.eager.graphs import keep
from torch_fl.compile.eager.operators import define

__all__ = ["define", "keep", "users_operators"]
