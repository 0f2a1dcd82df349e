"""torch_fl: one PyTorch device, `flagos`, in front of every accelerator.

Importing this package selects a backend, registers the device and applies its routes. Nothing here
imports torch by itself, so `torch` and `torch_fl` can be imported in either order.
"""

from torch_fl._activation import activate

__all__ = ["__version__", "flagos", "routing"]
__version__ = "0.1.0"

activate()

from torch_fl import flagos, routing  # noqa: E402  (they need the device)
