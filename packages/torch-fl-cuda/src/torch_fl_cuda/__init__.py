"""NVIDIA GPUs behind torch-fl's flagos device. `torch_fl_cuda.plugin` has the plugin's hooks.

Importing it, or any of its modules, imports neither torch nor CUDA.
"""

__version__ = "0.1.0"
