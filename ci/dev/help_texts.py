"""Owns: the examples in the help of `./dev`. In braces: what cli.py fills in."""

OVERVIEW = """\
examples:
  ./dev run                        build, then train a small model on the flagos device
  ./dev test                       build, then run all the tests
  ./dev lint --fix                 style and types, mending what can be mended
  ./dev run --torch=installed      the same with the torch that this interpreter has

Everything it makes lies inside the repository: .venv, build and packages/*/build.
"""
RUN = """\
examples:
  ./dev run
  ./dev run -- --help              options of the demo
  MAX_JOBS=1 ./dev run             one compiler at a time
  python3.12 dev run               with another interpreter
"""
TEST = """\
areas (with their budgets on 2 cores):
{areas}

examples:
  ./dev test
  ./dev test --area unit --time-report
  ./dev test --ecosystem           transformers, Lightning, timm, ... in .venv-ecosystem
  ./dev test --full                also the slow tests and the whole operator database
  ./dev test -- -k dropout -x      arguments for pytest (areas without pytest are left out)
"""
LINT = """\
parts:
{parts}

examples:
  ./dev lint
  ./dev lint --fix
  ./dev lint --part ruff ruff-format
"""
BENCH = """\
examples:
  ./dev bench                      names the benchmarks
  ./dev bench dispatch
  ./dev bench dispatch --json dispatch.json
  ./dev bench compile --model mlp  torch.compile on flagos; --compare: against the device natively
  ./dev bench cuda --help          the rows of docs/performance.md, on a machine with a GPU
"""
ASAN = """\
examples:
  ./dev asan
  ./dev asan -- -k backward        what follows -- goes to pytest
"""
WHEELS = """\
examples:
  ./dev wheels
  pip install --find-links build/wheels/torch-2.13 torch-fl

What is compiled already is only linked. docs/compatibility-policy.md has the rules for versions.
"""
ECOSYSTEM = """\
rows:
{rows}

examples:
  ./dev ecosystem                  runs what has not gone well since the last change
  ./dev ecosystem timm_models --again

It makes .venv-ecosystem, with its own torch and the libraries in ci/ecosystem/requirements.txt.
"""
DOCS = """\
examples:
  ./dev docs                       writes build/docs/environment.md and docs/ecosystem.md
"""
