"""Owns: every place where torch_fl touches what PyTorch does not promise.

One module for each adaptation, with its reason, the versions it is for and the test that fails by
name when a torch release makes it unnecessary or wrong. `compiler` has those of torch.compile's
stack; beside it are those of eager programs: autograd, layers, other libraries and processes, and
what adapting needs itself (`importing`, `replacing`, `function_modes`, `torch_binary`).
"""
