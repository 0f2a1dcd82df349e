"""Owns: what is adapted in the compiler, in the order in which a graph meets it.

- Dynamo, which traces a function: `dynamo` (what it knows of flagos), `dynamo_calls` (functions of
  torch.flagos in it), `dynamo_frames` (what of torch_fl it looks into), `fx_frames` (where a
  generated line comes from).
- AOTAutograd, which traces its gradient: `aot_autograd`, `fake_tensors`.
- Inductor, which compiles: `inductor` is the one that knows how, for graphs that are renamed to the
  target. Around its entries stand `caches` and `failures`; `packages` loads what AOTInductor made.
- Triton, where flagos is itself a device of Inductor's: `triton_inductor`, `triton_cuda_like` and
  `triton_codegen` in Inductor, `triton_compile` and `triton_backends` in Triton, `triton_kernels`
  for users' kernels.

Nothing else in torch_fl names a part of Inductor, but for its settings and public functions.
"""
