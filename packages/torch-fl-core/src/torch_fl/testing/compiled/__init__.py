"""Owns: the compiler's smoke set: graphs that must compute the same compiled as they do eagerly.

    python -m torch_fl.testing.compiled --device flagos --json results.jsonl

``program`` says what a graph is, ``graphs`` has them by theme, ``execution`` runs one eagerly and
compiled, ``comparison`` says what differs. Any device with a compiler can be asked: "cpu" and
"cuda" give what "flagos" is measured by.
"""
