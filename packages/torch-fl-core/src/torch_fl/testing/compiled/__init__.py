"""Owns: the compiler's smoke set: graphs that must compute the same compiled as they do eagerly.

    python -m torch_fl.testing.compiled --device flagos --json results.jsonl
    python -m torch_fl.testing.compiled --merge results.jsonl --against native.jsonl

``program`` says what a graph is, ``graphs`` has them by theme, ``execution`` runs one eagerly and
compiled, ``comparison`` says what differs, ``operators`` what it is compiled from, ``results``
keeps it, ``side_by_side`` compares two devices, ``known`` has what may differ between them. Any
device with a compiler can be asked: "cpu" and "cuda" give what "flagos" is measured by.
"""
