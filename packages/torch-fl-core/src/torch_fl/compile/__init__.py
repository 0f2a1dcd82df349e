"""Owns: torch.compile on flagos.

A graph stays on flagos through Dynamo and AOTAutograd; then `renaming` gives it the device that
flagos stands on, Inductor compiles it there, and `regions` calls the result with flagos tensors.
Where flagos stands on none that Inductor knows, it is itself a device of Inductor's, for which
Triton kernels are generated: `target` says so, `triton_device` is that device, and `policies` are
what its maker's compiler needs otherwise than Triton's.
"""

from torch_fl.compile.flagtree import flagtree_version, is_flagtree_active, require_flagtree

__all__ = ["flagtree_version", "is_flagtree_active", "require_flagtree"]
