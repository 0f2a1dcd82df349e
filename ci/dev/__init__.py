"""Owns: the parts of `./dev`. Standard library only: they run before anything is installed.

`cli` reads the command line. `bootstrap` brings the environment up to date in steps (`virtualenv`,
`packages`, `build`), after `checks` and `machine` found nothing that forbids them. `testing`,
`lint`, `bench` and `asan` are the commands' work.
"""
