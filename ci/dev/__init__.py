"""Owns: the parts of `./dev`. Standard library only: they run before anything is installed.

`cli` reads the command line; `bootstrap` brings the environment up to date in steps (`packages`,
`build`) after `checks` found nothing that forbids it; `testing`, `lint`, `bench` and `asan` are
the commands' work.
"""
